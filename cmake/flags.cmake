# SPDX-License-Identifier: MIT
# How everything in this tree is compiled.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_definitions(_POSIX_C_SOURCE=200809L)

set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")
set(CMAKE_C_FLAGS_SANITIZE
    "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_THREAD "-O1 -g -fsanitize=thread -fno-omit-frame-pointer")

# The floating-point contract: results depend on the source, not on which multiplications and
# additions a compiler chose to contract or reorder. Hence never -ffast-math.
add_compile_options(-ffp-contract=off -fno-math-errno)

add_compile_options(
    -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
    -Wcast-align -Wwrite-strings -Wundef -Wformat=2)
if(CMAKE_C_COMPILER_ID MATCHES Clang)
    # Complains about every pointer into a block of attributes, however well aligned its fields are.
    add_compile_options(-Wno-cast-align)
endif()
if(WEFT_WERROR)
    add_compile_options(-Werror)
endif()

# Fuzzing: everything is instrumented, only the targets get libFuzzer's main (cmake/fuzz.cmake).
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
