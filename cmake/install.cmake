# SPDX-License-Identifier: MIT
# Files that "make install" installs. The installed tree is relocatable: no file contains the prefix.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(TARGETS weft_cli)
include(cmake/install_help.cmake)
if(WEFT_STATIC)
    return() # a static build installs no libraries, header or package files
endif()
install(TARGETS weft_static)
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
set(WEFT_PC_CUDA "") # a full path, because the linker does not search the CUDA folder
if(WEFT_HAVE_CUDA)
    set(WEFT_PC_CUDA "${WEFT_CUDART} -lrt")
endif()
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
