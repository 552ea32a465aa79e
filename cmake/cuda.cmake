# SPDX-License-Identifier: MIT
# Builds the cuda device if nvcc is found. The CUDA runtime is linked statically and loads the driver at run
# time, so the same program starts on machines without a GPU. Sanitized builds emulate the kernels
# (emulator.cmake) instead.
#
# WEFT_CUDA_ARCHITECTURES is a list of compute capabilities, for example "80;90a". "all" selects every
# supported one, for packages. "native" selects the GPUs of this machine, or the newest supported capability
# if nvidia-smi finds no GPU. Each architecture takes minutes to compile on two cores. WEFT_CUDA_PTX adds PTX,
# from which the driver compiles kernels for GPUs of compute capability 9.0 and later. It takes as long to
# compile as an architecture. By default it is on with "all", and with "native" if a GPU is newer than every
# supported architecture.

set(WEFT_CUDA AUTO CACHE STRING "The cuda device: ON, OFF, or AUTO (when nvcc is found, except in Sanitize)")
set(WEFT_CUDA_ARCHITECTURES native CACHE STRING "Compute capabilities to compile kernels for, all, or native")
set(WEFT_CUDA_PTX AUTO CACHE STRING "Embed PTX for later GPUs: ON, OFF, or AUTO (with all architectures)")
option(WEFT_CUDA_OPTIMIZE "Optimise CUDA kernels; OFF compiles in half the time, for machines without a GPU" ON)
option(WEFT_CUDA_EVERY_LANE "Hopper kernels whose lanes all arrive at barriers, for compute-sanitizer's racecheck" OFF)

set(supported 80 86 89 90a)
set(architectures ${WEFT_CUDA_ARCHITECTURES})
set(ptx ${WEFT_CUDA_PTX})
if(architectures STREQUAL "all")
    set(architectures ${supported})
    if(ptx STREQUAL "AUTO")
        set(ptx ON)
    endif()
elseif(architectures STREQUAL "native")
    set(architectures)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
        OUTPUT_VARIABLE capabilities OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
        string(REGEX MATCHALL "[0-9]+[.][0-9]+" capabilities "${capabilities}")
        foreach(capability IN LISTS capabilities)
            string(REPLACE "." "" capability ${capability})
            # Take the newest supported architecture that runs on this GPU: same major version, not newer.
            set(match)
            foreach(candidate IN LISTS supported)
                string(REGEX REPLACE "a$" "" number ${candidate})
                string(SUBSTRING ${number} 0 1 major)
                if(capability MATCHES "^${major}.$" AND NOT number GREATER capability)
                    set(match ${candidate})
                endif()
            endforeach()
            list(APPEND architectures ${match})
            # Later than all that are supported: only PTX runs there.
            if(NOT match AND capability GREATER 90 AND ptx STREQUAL "AUTO")
                set(ptx ON)
            endif()
        endforeach()
        list(REMOVE_DUPLICATES architectures)
    endif()
    if(NOT architectures)
        list(GET supported -1 architectures)
    endif()
endif()
if(ptx STREQUAL "AUTO")
    set(ptx OFF)
endif()

set(WEFT_CUDA_OBJECTS)
set(WEFT_HAVE_CUDA 0)
find_program(WEFT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
if(WEFT_NVCC)
    get_filename_component(cuda_home ${WEFT_NVCC} REALPATH)
    get_filename_component(cuda_home ${cuda_home} DIRECTORY)
    get_filename_component(WEFT_CUDA_HOME ${cuda_home} DIRECTORY)
    find_path(WEFT_CUDA_INCLUDE cuda_runtime_api.h
        HINTS ${WEFT_CUDA_HOME}/include ${WEFT_CUDA_HOME}/targets/x86_64-linux/include)
    find_library(WEFT_CUDART cudart_static
        HINTS ${WEFT_CUDA_HOME}/lib64 ${WEFT_CUDA_HOME}/lib ${WEFT_CUDA_HOME}/targets/x86_64-linux/lib)
endif()

if(WEFT_CUDA STREQUAL "ON" AND NOT (WEFT_NVCC AND WEFT_CUDA_INCLUDE AND WEFT_CUDART))
    message(FATAL_ERROR
        "WEFT_CUDA is ON, but nvcc, its headers or libcudart_static is missing; set CUDA_HOME to a CUDA toolkit")
endif()

file(GLOB cuda_host_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.c)
list(REMOVE_ITEM cuda_host_sources ${PROJECT_SOURCE_DIR}/src/device/cuda/absent.c)
file(GLOB cuda_kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cu)

if(WEFT_NVCC AND WEFT_CUDA_INCLUDE AND WEFT_CUDART AND NOT WEFT_CUDA STREQUAL "OFF" AND NOT WEFT_STATIC AND
   (WEFT_CUDA STREQUAL "ON" OR NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize"))
    set(WEFT_HAVE_CUDA 1)
    set(warnings -Wall,-Wextra,-Wno-missing-field-initializers)
    if(WEFT_WERROR)
        set(warnings ${warnings},-Werror)
        set(nvcc_werror -Werror all-warnings)
    endif()
    # Flags that compile device code quickly: a third of the time, or half of it with an older nvcc.
    execute_process(COMMAND ${WEFT_NVCC} --help OUTPUT_VARIABLE nvcc_help ERROR_QUIET)
    set(quick -Xcicc -O1 -Xptxas -O0)
    if(nvcc_help MATCHES "Ofast-compile")
        set(quick -Ofc max)
    endif()
    set(compress size)
    if(NOT WEFT_CUDA_OPTIMIZE)
        set(compress none)
    endif()
    # Files called hopper*.cu have kernels for compute capability 9.0 only.
    foreach(source IN LISTS cuda_kernel_sources)
        get_filename_component(name ${source} NAME_WE)
        set(codes)
        foreach(arch IN LISTS architectures)
            if(NOT name MATCHES "^hopper" OR arch STREQUAL "90a")
                list(APPEND codes -gencode=arch=compute_${arch},code=sm_${arch})
            endif()
        endforeach()
        if(ptx AND NOT name MATCHES "^hopper")
            list(APPEND codes -gencode=arch=compute_90,code=compute_90)
        endif()
        if(NOT codes)
            continue() # no chosen architecture runs this file
        endif()
        if(WEFT_CUDA_EVERY_LANE AND name MATCHES "^hopper")
            list(APPEND codes -DWF_HOPPER_EVERY_LANE)
        endif()
        # Hopper's kernels keep their optimisations: without them ptxas serializes wgmma and warns.
        set(host_optimize -O3)
        if(NOT WEFT_CUDA_OPTIMIZE)
            set(host_optimize -O0) # launchers: a third of the time to compile elementwise.cu
            if(NOT name MATCHES "^hopper")
                list(APPEND codes ${quick})
            endif()
        endif()
        set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
        add_custom_command(OUTPUT ${object}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/cuda
            COMMAND ${WEFT_NVCC} -std=c++20 ${host_optimize} ${codes} --compress-mode=${compress}
                -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
                -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,${warnings}
                ${nvcc_werror} -MD -MF ${object}.d -c ${source} -o ${object}
            DEPENDS ${source} DEPFILE ${object}.d
            COMMENT "Building CUDA object ${name}.o" VERBATIM)
        list(APPEND WEFT_CUDA_OBJECTS ${object})
    endforeach()
    add_custom_target(weft_cuda_objects ALL DEPENDS ${WEFT_CUDA_OBJECTS}) # compiles in parallel with the C files
    target_sources(weft_objects PRIVATE ${cuda_host_sources})
    target_include_directories(weft_needs SYSTEM INTERFACE ${WEFT_CUDA_INCLUDE})
    target_link_libraries(weft_needs INTERFACE ${WEFT_CUDART} rt)
    set(hopper 0)
    if("90a" IN_LIST architectures)
        set(hopper 1)
    endif()
    target_compile_definitions(weft_objects PRIVATE WF_CUDA_HOPPER=${hopper})
    # The device reports this list when it finds a GPU without kernels.
    list(JOIN architectures ", " listed)
    if(ptx)
        string(APPEND listed " and PTX")
    endif()
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/device/cuda/device.c
        APPEND PROPERTY COMPILE_DEFINITIONS "WF_CUDA_ARCHITECTURES=\"${listed}\"")
    message(STATUS "Weft: CUDA kernels for ${listed} (compiling takes minutes; -DWEFT_CUDA=OFF leaves them out)")
else()
    target_sources(weft_objects PRIVATE ${PROJECT_SOURCE_DIR}/src/device/cuda/absent.c)
    message(STATUS "Weft: no cuda device")
endif()
