# What `cmake --install` puts where: library, headers, program, manual page, tuning
# tables, and how pkg-config and find_package find them.
install(TARGETS danaus EXPORT danaus-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/danaus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
if(TARGET danaus-program)
    install(TARGETS danaus-program DESTINATION ${CMAKE_INSTALL_BINDIR})
    set_target_properties(danaus-program PROPERTIES
        INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

file(GLOB manual_pages docs/*.1)
install(FILES ${manual_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
file(GLOB tuning_tables bench/tuning/*.csv)
install(FILES ${tuning_tables} DESTINATION ${CMAKE_INSTALL_DATADIR}/danaus/tuning)

file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
list(JOIN LAPACK_LIBRARIES " " pc_private)
string(APPEND pc_private " ${CMAKE_THREAD_LIBS_INIT} -lm")
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
install(EXPORT danaus-targets NAMESPACE danaus:: DESTINATION ${package_dir})
