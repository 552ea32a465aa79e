# SPDX-License-Identifier: MIT
# Compiler and linker flags of all targets.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_definitions(_POSIX_C_SOURCE=200809L)

set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")
# -g1 gives line numbers in reports. -g would add a quarter to the time of compiling and linking.
set(CMAKE_C_FLAGS_SANITIZE
    "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer")
# gcc 13 looks for uses of locals after their function returned, and keeps the locals of a frame where vectors
# of 64 bytes are misaligned (gcc bug 110027): AVX-512 kernels crash. gcc 12 does not look for them by default.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION MATCHES "^13[.]")
    string(APPEND CMAKE_C_FLAGS_SANITIZE " --param=asan-use-after-return=0")
endif()
# Programs at fixed addresses need no relocations. Position-independent, each start of a sanitized program would
# write 20 MB of pages and take 1.5 times as long.
if(CMAKE_BUILD_TYPE STREQUAL "Sanitize" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()
set(CMAKE_C_FLAGS_THREAD "-O1 -g1 -fsanitize=thread -fno-omit-frame-pointer")

# Results must depend only on the source: the compiler must not contract or reorder floating-point
# operations. Never use -ffast-math.
add_compile_options(-ffp-contract=off -fno-math-errno)

add_compile_options(
    -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
    -Wcast-align -Wwrite-strings -Wundef -Wformat=2)
if(CMAKE_C_COMPILER_ID MATCHES Clang)
    # clang warns about every pointer into a block of attributes, even if its fields are aligned.
    add_compile_options(-Wno-cast-align)
endif()
if(WEFT_WERROR)
    add_compile_options(-Werror)
endif()

# Use ccache if it is installed, unless the caller set a launcher. An empty WEFT_CCACHE disables it.
find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${WEFT_CCACHE})
endif()

# Use the fastest linker that works with the compiler: a test build links 150 programs. Builds without tests,
# which users install, keep the compiler's linker.
if(WEFT_TESTS)
    include(CheckLinkerFlag)
    foreach(linker mold lld gold)
        check_linker_flag(C -fuse-ld=${linker} WEFT_LINKS_WITH_${linker})
        if(WEFT_LINKS_WITH_${linker})
            add_link_options(-fuse-ld=${linker})
            break()
        endif()
    endforeach()
endif()

# Test code runs briefly, so a lower optimisation level saves time in total.
set(WEFT_TEST_OPTIONS $<$<CONFIG:Release>:-O1> $<$<CONFIG:Sanitize>:-O0>)

# Fuzzing instruments all code. Only the fuzz targets link libFuzzer's main (cmake/fuzz.cmake).
if(WEFT_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang OR NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
        message(FATAL_ERROR
            "WEFT_FUZZ needs clang and the sanitizers: configure with -DCMAKE_C_COMPILER=clang "
            "-DCMAKE_BUILD_TYPE=Sanitize, or use \"make fuzz\"")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# WF_CHECK is always 0 or 1, so that "#if WF_CHECK" passes -Wundef.
if(WEFT_CHECK STREQUAL "AUTO")
    if(WEFT_TESTS OR CMAKE_BUILD_TYPE MATCHES "^(Debug|Sanitize|Thread)$")
        add_compile_definitions(WF_CHECK=1)
    else()
        add_compile_definitions(WF_CHECK=0)
    endif()
else()
    add_compile_definitions(WF_CHECK=$<BOOL:${WEFT_CHECK}>)
endif()
