# cmake -DOUT=FILE -DHEADER=H -DTABLE=NAME -DROW=TYPE -P texts.cmake -- TEXT...: writes the
# table NAME that the header H declares, a row of TYPE for each text: its name, and its
# content as an array of bytes.
# SPDX-License-Identifier: Apache-2.0
set(arrays "")
set(rows "")
set(number 0)
set(seen OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
    set(text "${CMAKE_ARGV${i}}")
    if(seen)
        get_filename_component(name "${text}" NAME)
        file(READ "${text}" bytes HEX)
        string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
        string(APPEND arrays "static const char text_${number}[] = { ${bytes}0 };\n")
        string(APPEND rows "    { \"${name}\", text_${number} },\n")
        math(EXPR number "${number} + 1")
    elseif(text STREQUAL "--")
        set(seen ON)
    endif()
endforeach()
file(WRITE "${OUT}.new" "#include \"${HEADER}\"\n\n${arrays}
const ${ROW} ${TABLE}[] = {\n${rows}    { 0 },\n};\n")
file(RENAME "${OUT}.new" "${OUT}")
