# SPDX-License-Identifier: MIT
# Man pages and shell completions, which the program prints. A cross-compiled program does not run on this
# machine: -DWEFT_HOST_PROGRAM=build/weft names one that does. Without it these files are not installed.
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
