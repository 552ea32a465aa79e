# SPDX-License-Identifier: MIT
# Vector kernels. Every file of src/device/cpu/simd is compiled once for each instruction set of the
# architecture, with flags that the rest of the library does not have. src/device/cpu/isa.c selects the
# instruction set when the program starts.

# weft_simd(NAME FLAGS...): adds the kernels of one instruction set.
function(weft_simd name)
    string(TOUPPER ${name} upper)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cpu/simd/*.c)
    add_library(weft_simd_${name} OBJECT ${sources})
    target_include_directories(weft_simd_${name} PRIVATE include src)
    target_compile_definitions(weft_simd_${name} PRIVATE WF_ISA=${name} WF_ISA_${upper}=1)
    target_compile_options(weft_simd_${name} PRIVATE ${ARGN} ${vector_sanitize})
    target_link_libraries(weft_simd_${name} PRIVATE weft_needs)
    set(WEFT_SIMD_OBJECTS ${WEFT_SIMD_OBJECTS} $<TARGET_OBJECTS:weft_simd_${name}> PARENT_SCOPE)
    set(WEFT_SIMD_SETS ${WEFT_SIMD_SETS} ${name} PARENT_SCOPE)

    # A test of the vector type that needs no library. "make arm" builds it without the other tests.
    add_executable(vectors_${name} EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/vectors/vectors.c)
    set_target_properties(vectors_${name} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(vectors_${name} PRIVATE include src)
    target_compile_definitions(vectors_${name} PRIVATE WF_ISA=${name} WF_ISA_${upper}=1)
    target_compile_options(vectors_${name} PRIVATE ${ARGN})
    target_link_libraries(vectors_${name} PRIVATE m)
endfunction()

# weft_amx(NAME EMULATED FLAGS...): adds the kernels of src/device/cpu/amx, which extend the set avx512.
function(weft_amx name emulated)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cpu/amx/*.c)
    add_library(weft_simd_${name} OBJECT ${sources})
    target_include_directories(weft_simd_${name} PRIVATE include src)
    target_compile_definitions(weft_simd_${name} PRIVATE WF_ISA=avx512 WF_ISA_AVX512=1
        WF_AMX_SET=${name} WF_AMX_EMULATED=${emulated})
    target_compile_options(weft_simd_${name} PRIVATE ${ARGN})
    target_link_libraries(weft_simd_${name} PRIVATE weft_needs)
    string(TOUPPER ${name} upper)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/device/cpu/isa.c
        APPEND PROPERTY COMPILE_DEFINITIONS WF_CPU_${upper}=1)
    set(WEFT_SIMD_OBJECTS ${WEFT_SIMD_OBJECTS} $<TARGET_OBJECTS:weft_simd_${name}> PARENT_SCOPE)
    set(WEFT_TILE_SETS ${WEFT_TILE_SETS} ${name} PARENT_SCOPE)
endfunction()

# Do not instrument the innermost loops of the matmul: they would take half of the time of all sanitized
# tests. Their caller, gemm_run.c, checks the ranges that they access. It is instrumented, except that vector
# loads need no alignment.
set(vector_sanitize)
if(CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    # The address sanitizer finds these accesses too, and the checks take a third of the time to compile kernels.
    set(vector_sanitize -fno-sanitize=null,object-size,pointer-overflow)
    # peak.c is not instrumented either, or a matmul would run faster than the measured peak.
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/device/cpu/simd/gemm_tile.c
        ${PROJECT_SOURCE_DIR}/src/device/cpu/simd/peak.c
        PROPERTY COMPILE_OPTIONS -O2 -fno-sanitize=all)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/device/cpu/simd/gemm_run.c
        PROPERTY COMPILE_OPTIONS -fno-sanitize=alignment,null)
endif()

# Ask the compiler for the architecture: -m32 does not change CMAKE_SYSTEM_PROCESSOR.
include(CheckSymbolExists)
include(CheckCSourceCompiles)
check_symbol_exists(__x86_64__ "" WEFT_X86_64)
check_symbol_exists(__aarch64__ "" WEFT_ARM64)

set(WEFT_SIMD_OBJECTS)
set(WEFT_SIMD_SETS)
set(WEFT_TILE_SETS)
if(CMAKE_BUILD_TYPE STREQUAL "Thread")
    # The reference kernels suffice: the same code distributes the kernels of all sets over threads.
elseif(WEFT_X86_64)
    set(avx2 -mavx2 -mfma -mf16c -mbmi2)
    # Sanitized tests run the best set only. Where that is AVX-512, do not compile AVX2.
    set(cpu_flags)
    if(CMAKE_BUILD_TYPE STREQUAL "Sanitize" AND NOT CMAKE_CROSSCOMPILING AND EXISTS /proc/cpuinfo)
        file(STRINGS /proc/cpuinfo cpu_flags REGEX "^flags.* avx512vl .*avx512_vnni" LIMIT_COUNT 1)
    endif()
    if(NOT cpu_flags)
        weft_simd(avx2 ${avx2})
        set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/device/cpu/isa.c
            APPEND PROPERTY COMPILE_DEFINITIONS WF_CPU_AVX2=1)
    endif()
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
        -mprefer-vector-width=512)
    weft_simd(avx512 ${avx512})
    set(amx -mamx-tile -mamx-int8 -mamx-bf16)
    string(REPLACE ";" " " CMAKE_REQUIRED_FLAGS "${amx}")
    check_c_source_compiles("int main(void) { __asm__(\"tilerelease\"); return 0; }" WEFT_HAVE_AMX)
    unset(CMAKE_REQUIRED_FLAGS)
    # Sanitized tests use the real tiles only where they exist; the emulated ones check the same code.
    if(CMAKE_BUILD_TYPE STREQUAL "Sanitize" AND NOT CMAKE_CROSSCOMPILING AND cpu_flags AND NOT cpu_flags MATCHES " amx_int8")
        set(WEFT_HAVE_AMX OFF)
    endif()
    if(WEFT_HAVE_AMX)
        weft_amx(amx 0 ${avx512} ${amx})
    endif()
    # The AMX kernels with tiles in plain C, for tests on machines without AMX.
    if(WEFT_TESTS)
        weft_amx(amx_emulated 1 ${avx512})
    endif()
elseif(WEFT_ARM64)
    weft_simd(neon)
    weft_simd(dotprod -march=armv8.2-a+dotprod -DWF_ISA_NEON=1)
    weft_simd(i8mm -march=armv8.2-a+dotprod+i8mm+bf16 -DWF_ISA_NEON=1)
endif()
if(WEFT_SIMD_OBJECTS)
    target_compile_definitions(weft_objects PRIVATE WF_CPU_SIMD=1)
else()
    target_compile_definitions(weft_objects PRIVATE WF_CPU_SIMD=0)
    message(STATUS "Weft: no vector kernels for this architecture; the reference kernels run")
endif()
