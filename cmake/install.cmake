# What `cmake --install` puts where: library, headers, program, manual page, tuning
# tables, and how pkg-config and find_package find them.
# SPDX-License-Identifier: Apache-2.0
install(TARGETS danaus_static EXPORT danaus-static-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(BUILD_SHARED_LIBS)
    install(TARGETS danaus EXPORT danaus-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/danaus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
if(TARGET danaus-program)
    install(TARGETS danaus-program DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET dn_completion)
    install(FILES ${completion_bash} RENAME danaus
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${completion_zsh} RENAME _danaus
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(GLOB manual_pages docs/*.1)
install(FILES ${manual_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
file(GLOB tuning_tables bench/tuning/*.csv)
install(FILES ${tuning_tables} DESTINATION ${CMAKE_INSTALL_DATADIR}/danaus/tuning)

# Where the folders are relative, so is danaus.pc: what is installed may be moved.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
    string(PREPEND pc_prefix "\${pcfiledir}/")
endif()
foreach(folder LIBDIR INCLUDEDIR)
    string(TOLOWER pc_${folder} variable)
    set(${variable} "\${prefix}/${CMAKE_INSTALL_${folder}}")
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
        set(${variable} ${CMAKE_INSTALL_${folder}})
    endif()
endforeach()
list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE pc_dl)
set(pc_lapack "")
if(DANAUS_LINK_LAPACK)
    set(pc_lapack "-llapack -lblas ") # any LAPACK will do
endif()
configure_file(cmake/danaus.pc.in danaus.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/danaus.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/danaus)
configure_package_config_file(cmake/danaus-config.cmake.in danaus-config.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(danaus-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/danaus-config.cmake
    ${PROJECT_BINARY_DIR}/danaus-config-version.cmake DESTINATION ${package_dir})
if(BUILD_SHARED_LIBS)
    install(EXPORT danaus-targets NAMESPACE danaus:: DESTINATION ${package_dir})
endif()
install(EXPORT danaus-static-targets NAMESPACE danaus:: DESTINATION ${package_dir})
