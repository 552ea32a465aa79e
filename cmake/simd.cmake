# SPDX-License-Identifier: MIT
# Kernels for vector units: every file of src/device/cpu/simd is compiled once for each instruction set
# of the architecture, with flags that the rest of the library does not have. Which of them run is
# decided when the program starts (src/device/cpu/isa.c).

# weft_simd(NAME FLAGS...)
function(weft_simd name)
    string(TOUPPER ${name} upper)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cpu/simd/*.c)
    add_library(weft_simd_${name} OBJECT ${sources})
    target_include_directories(weft_simd_${name} PRIVATE include src)
    target_compile_definitions(weft_simd_${name} PRIVATE WF_ISA=${name} WF_ISA_${upper}=1)
    target_compile_options(weft_simd_${name} PRIVATE ${ARGN})
    target_link_libraries(weft_simd_${name} PRIVATE weft_needs)
    set(WEFT_SIMD_OBJECTS ${WEFT_SIMD_OBJECTS} $<TARGET_OBJECTS:weft_simd_${name}> PARENT_SCOPE)
endfunction()

set(WEFT_SIMD_OBJECTS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(avx2 -mavx2 -mfma -mf16c -mbmi2)
    weft_simd(avx2 ${avx2})
    weft_simd(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
        -mprefer-vector-width=512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    weft_simd(neon)
endif()
if(WEFT_SIMD_OBJECTS)
    target_compile_definitions(weft_objects PRIVATE WF_CPU_SIMD=1)
else()
    target_compile_definitions(weft_objects PRIVATE WF_CPU_SIMD=0)
    message(STATUS "Weft: no vector kernels for ${CMAKE_SYSTEM_PROCESSOR}, the reference ones run")
endif()
