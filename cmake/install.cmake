# SPDX-License-Identifier: MIT
# What "make install" installs, and where. The installed tree can be moved: no file in it contains the prefix.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(TARGETS weft_cli weft_static)
install(TARGETS weft_shared EXPORT weft-targets)
install(FILES include/weft.h include/weft_quant.def DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${package_dir})
configure_package_config_file(cmake/weft-config.cmake.in weft-config.cmake
    INSTALL_DESTINATION ${package_dir}
    NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    ${PROJECT_BINARY_DIR}/weft-config.cmake
    ${PROJECT_BINARY_DIR}/weft-config-version.cmake
    DESTINATION ${package_dir})

file(RELATIVE_PATH WEFT_PC_TO_PREFIX
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" WEFT_PC_TO_PREFIX ${WEFT_PC_TO_PREFIX})
set(WEFT_PC_PCRE2 "")
if(PCRE2_INCLUDE_DIR AND PCRE2_LIBRARY)
    set(WEFT_PC_PCRE2 -lpcre2-8)
endif()
set(WEFT_PC_CUDA "") # which lies in no folder that linkers look at by themselves
if(WEFT_HAVE_CUDA)
    set(WEFT_PC_CUDA "${WEFT_CUDART} -lrt")
endif()
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Man pages and shell completions, printed by the program itself. When cross-compiling, the program does not
# run here: name one that does with -DWEFT_HOST_PROGRAM=build/weft, or the files are left out.
set(WEFT_HOST_PROGRAM "" CACHE FILEPATH "A weft program that runs on this machine, for cross-compiling")
if(WEFT_HOST_PROGRAM OR NOT CMAKE_CROSSCOMPILING)
    set(help_dir ${PROJECT_BINARY_DIR}/help)
    set(help_program ${WEFT_HOST_PROGRAM})
    if(NOT WEFT_HOST_PROGRAM)
        set(help_program $<TARGET_FILE:weft_cli>)
    endif()
    add_custom_command(OUTPUT ${help_dir}/stamp
        COMMAND ${CMAKE_COMMAND} -D PROGRAM=${help_program} -D OUTPUT=${help_dir}
            -P ${PROJECT_SOURCE_DIR}/cmake/help_files.cmake
        DEPENDS weft_cli ${PROJECT_SOURCE_DIR}/cmake/help_files.cmake
        COMMENT "Writing man pages and shell completions"
        VERBATIM)
    add_custom_target(weft_help ALL DEPENDS ${help_dir}/stamp)
    install(DIRECTORY ${help_dir}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
    install(FILES ${help_dir}/bash/weft
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${help_dir}/zsh/_weft DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${help_dir}/fish/weft.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
