# Writes OUT, a header with the commit that SOURCE is at, when it has changed: what git says,
# in an archive what git wrote into commit.txt, in neither "unknown".
# SPDX-License-Identifier: Apache-2.0
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/commit.txt commit LIMIT_COUNT 1)
if(NOT commit MATCHES "^[0-9a-f]+$")
    set(commit unknown)
    if(EXISTS ${SOURCE}/.git)
        execute_process(
            COMMAND git describe --always --exclude=* --dirty --abbrev=40
            WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE described ERROR_QUIET
            OUTPUT_STRIP_TRAILING_WHITESPACE)
        if(described)
            set(commit ${described})
        endif()
    endif()
endif()
if(commit MATCHES "^[0-9a-f]+") # the first ten digits name it
    string(SUBSTRING ${commit} 0 10 short)
    string(REPLACE ${CMAKE_MATCH_0} ${short} commit ${commit})
endif()
set(text "#define DANAUS_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
    file(READ ${OUT} old)
endif()
if(NOT text STREQUAL "${old}")
    file(WRITE ${OUT} "${text}")
endif()
