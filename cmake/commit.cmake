# Writes OUT, a header with the commit that SOURCE is at, when it has changed.
execute_process(COMMAND git describe --always --dirty --abbrev=10
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT commit)
    set(commit unknown)
endif()
set(text "#define DANAUS_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
    file(READ ${OUT} old)
endif()
if(NOT text STREQUAL "${old}")
    file(WRITE ${OUT} "${text}")
endif()
