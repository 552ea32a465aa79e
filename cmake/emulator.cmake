# SPDX-License-Identifier: MIT
# Tests of the cuda device without a GPU. Its files are compiled for the host against an emulated runtime
# (tests/emulator). The program weft_emulated is weft with this device; `selftest --device cuda` tests the kernels.
# Needs the headers of the CUDA toolkit, a C++ compiler and awk.

# library.c loads NVIDIA's libraries, which need a GPU. tests/emulator/absent.c replaces it.
set(left_out "/library[.]c$")

if(CMAKE_C_COMPILER_ID MATCHES Clang)
    find_program(WEFT_EMULATOR_CXX NAMES clang++ clang++-14)
else()
    find_program(WEFT_EMULATOR_CXX NAMES g++ c++)
endif()
find_program(WEFT_AWK awk)
if(NOT (WEFT_CUDA_INCLUDE AND WEFT_EMULATOR_CXX AND WEFT_AWK))
    message(STATUS "Weft: CUDA kernels are not emulated: the CUDA headers, a C++ compiler or awk is missing")
    return()
endif()

set(emulator ${PROJECT_SOURCE_DIR}/tests/emulator)
string(TOUPPER ${CMAKE_BUILD_TYPE} type)
separate_arguments(flags UNIX_COMMAND "${CMAKE_C_FLAGS_${type}}")
# Calls of the address sanitizer instead of inline checks halve the time to compile kernels. It also finds
# the accesses that the checks of null pointers, object sizes and pointer arithmetic find.
if(CMAKE_BUILD_TYPE STREQUAL "Sanitize" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -fno-sanitize=null,object-size,pointer-overflow --param asan-instrumentation-with-call-threshold=0)
endif()
list(TRANSFORM flags REPLACE "^-O3$" "-O2") # compiles faster and runs equally fast
# Kernels break strict aliasing, which nvcc allows. -w: nvcc reports the warnings.
list(APPEND flags -std=c++20 -fPIC -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off
    -fno-strict-aliasing -w -Wno-psabi
    -DWF_CUDA_EMULATED=1 -I${emulator} -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
    -isystem ${WEFT_CUDA_INCLUDE})

# weft_emulate(VARIABLE FOLDER SOURCE FLAGS...): compiles SOURCE and appends the object's path to VARIABLE.
function(weft_emulate variable folder source)
    get_filename_component(name ${source} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/${folder}/${name}.o)
    add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/${folder}
        COMMAND ${emulator}/compile.sh ${WEFT_AWK} ${object}.d ${object} ${source}
            ${CMAKE_C_COMPILER_LAUNCHER} ${WEFT_EMULATOR_CXX} ${flags} ${ARGN}
        DEPENDS ${source} ${emulator}/compile.sh ${emulator}/shared.awk
        DEPFILE ${object}.d
        COMMENT "Building emulated CUDA object ${name}.o" VERBATIM)
    set(${variable} ${${variable}} ${object} PARENT_SCOPE)
endfunction()

set(objects)
list(FILTER cuda_host_sources EXCLUDE REGEX "${left_out}")
foreach(source IN LISTS cuda_kernel_sources)
    # These take long to compile and little time in tests: fewer optimisations save 13 s (Release) and 10 s
    # (Sanitize) in all.
    set(quick)
    if(CMAKE_BUILD_TYPE STREQUAL "Sanitize" AND source MATCHES "/(elementwise|norm_grad)[.]cu$")
        set(quick -O0)
    elseif(source MATCHES "/(elementwise|norm|norm_grad|reduce|cast)[.]cu$")
        set(quick -O1)
    endif()
    weft_emulate(objects emulated ${source} ${quick})
endforeach()
weft_emulate(objects emulated ${emulator}/cublaslt.cu)

add_custom_target(weft_emulated_kernels DEPENDS ${objects}) # compiled once for all programs
set(emulated_objects ${objects})

# The runtime and the host code of the device. The linker takes these objects instead of the library's.
file(GLOB sources CONFIGURE_DEPENDS ${emulator}/*.c)
add_library(weft_emulator OBJECT ${sources})
target_include_directories(weft_emulator PRIVATE src include)
target_include_directories(weft_emulator SYSTEM PRIVATE ${WEFT_CUDA_INCLUDE})
target_link_libraries(weft_emulator PRIVATE weft_needs)

add_library(weft_emulated_device OBJECT ${cuda_host_sources})
target_include_directories(weft_emulated_device PRIVATE src include)
target_include_directories(weft_emulated_device SYSTEM PRIVATE ${WEFT_CUDA_INCLUDE})
target_compile_definitions(weft_emulated_device PRIVATE WF_CUDA_HOPPER=1 WF_CUDA_EMULATED=1)
target_link_libraries(weft_emulated_device PRIVATE weft_needs)

# weft_emulated_program(NAME SOURCES...): adds a program with the emulated device, in build/tests.
function(weft_emulated_program name)
    add_executable(${name} ${ARGN} ${objects}
        $<TARGET_OBJECTS:weft_emulated_device> $<TARGET_OBJECTS:weft_emulator>)
    set_target_properties(${name} PROPERTIES
        LINKER_LANGUAGE C RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_dependencies(${name} weft_emulated_kernels)
    target_include_directories(${name} PRIVATE src tests tests/emulator)
    target_compile_options(${name} PRIVATE ${WEFT_TEST_OPTIONS})
    target_include_directories(${name} SYSTEM PRIVATE ${WEFT_CUDA_INCLUDE})
endfunction()

# weft_emulator_program(NAME SOURCES...): adds a program with only the emulated runtime, in build/tests.
function(weft_emulator_program name)
    add_executable(${name} ${ARGN} $<TARGET_OBJECTS:weft_emulator>)
    set_target_properties(${name} PROPERTIES
        LINKER_LANGUAGE C RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA Threads::Threads m)
endfunction()

# weft_emulated_test(NAME COMMAND...): adds a test with the environment of all tests.
function(weft_emulated_test name)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment}")
endfunction()

# The ops that take longest: a quarter of their cases; "make test-long" runs all of them.
set(sampled linear head_loss attention attention_grad)

# weft_emulated_selftest(NAME PROGRAM OP VARIABLES...): adds the selftest of one op, with environment variables.
# Sanitized, slow ops are sampled; the selftest prints the seed.
function(weft_emulated_selftest name program op)
    set(command ${program} selftest --device cuda --op ${op})
    if(CMAKE_BUILD_TYPE STREQUAL "Sanitize" AND op IN_LIST sampled)
        weft_emulated_test(${name}_all ${command})
        set_tests_properties(${name}_all PROPERTIES LABELS long TIMEOUT 7200)
        set_property(TEST ${name}_all APPEND PROPERTY ENVIRONMENT ${ARGN})
        list(APPEND command --sample 25%)
    endif()
    weft_emulated_test(${name} ${command})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${ARGN})
endfunction()

weft_emulated_program(weft_emulated $<TARGET_OBJECTS:weft_cli>)
target_link_libraries(weft_emulated PRIVATE weft_static)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    weft_emulated_test(selftest_cuda_emulated weft_emulated selftest --device cuda)
else() # one op of each kind, with another order of blocks
    foreach(op IN ITEMS add where cast permute concat sum top_k softmax embed scatter_add_rows linear
            linear_grad_weight rms_norm_grad residual_layer_norm rope attention attention_grad
            cross_entropy_grad head_loss adamw_many kv_append)
        weft_emulated_selftest(selftest_cuda_emulated_${op} weft_emulated ${op} WEFT_EMULATED_SEED=2)
    endforeach()
endif()
# The ops that have Hopper kernels, also compiled for racecheck (WEFT_CUDA_EVERY_LANE).
set(programs hopper:weft_emulated)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    list(FILTER objects EXCLUDE REGEX "/hopper[^/]*[.]o$")
    foreach(source IN LISTS cuda_kernel_sources)
        if(source MATCHES "/hopper[^/]*[.]cu$")
            weft_emulate(objects every_lane ${source} -DWF_HOPPER_EVERY_LANE)
        endif()
    endforeach()
    weft_emulated_program(weft_every_lane $<TARGET_OBJECTS:weft_cli>)
    target_link_libraries(weft_every_lane PRIVATE weft_static)
    set(objects ${emulated_objects})
    list(APPEND programs every_lane:weft_every_lane)
endif()
foreach(program IN LISTS programs)
    string(REPLACE ":" ";" program ${program})
    list(GET program 0 name)
    list(GET program 1 program)
    foreach(op IN ITEMS attention attention_grad)
        weft_emulated_selftest(selftest_cuda_${name}_${op} ${program} ${op} WEFT_EMULATED_CAPABILITY=90)
    endforeach()
endforeach()

# weft_races: the emulated kernels report every memory access to race.c.
option(WEFT_RACES "Also build tests/weft_races, whose selftest finds races in emulated CUDA kernels" OFF)
if(WEFT_RACES AND NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    set(race_flags -O1 -g -fsanitize=thread --param=tsan-instrument-func-entry-exit=0)
    weft_emulate(race_test_object races ${PROJECT_SOURCE_DIR}/tests/test_races.cu ${race_flags})
    weft_emulator_program(test_races ${race_test_object})
    weft_emulated_test(races test_races)
    set(race_objects)
    list(FILTER cuda_kernel_sources EXCLUDE REGEX "/hopper[^/]*[.]cu$") # race.c does not support their barriers
    foreach(source IN LISTS cuda_kernel_sources)
        weft_emulate(race_objects races ${source} ${race_flags})
    endforeach()
    set(objects ${race_objects} ${PROJECT_BINARY_DIR}/emulated/cublaslt.o)
    weft_emulated_program(weft_races $<TARGET_OBJECTS:weft_cli>)
    target_link_libraries(weft_races PRIVATE weft_static)
    weft_emulated_test(selftest_cuda_races weft_races selftest --device cuda)
    set_tests_properties(selftest_cuda_races PROPERTIES LABELS long)
    set(objects ${emulated_objects})
endif()

# Each tests/emulated/test_NAME.c is one program and one test called NAME.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/emulated/test_*.c)
foreach(source IN LISTS sources)
    get_filename_component(program ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${program})
    weft_emulated_program(${program} ${source})
    target_link_libraries(${program} PRIVATE weft_test_support)
    weft_emulated_test(${name} ${program})
endforeach()

# Tests that read the device from the environment. Whole models and training take long, so only Release runs them.
set(tests bad_data:BAD_DATA narrow_linear:NARROW)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    list(APPEND tests parity:PARITY loss_scale:PRECISION optimizer:OPTIMIZER curves:CURVES models:MODELS
        device_train:TRAIN families_train:FAMILIES copies:COPIES windows:WINDOWS engine:ENGINE exact:EXACT)
endif()
foreach(name IN LISTS tests)
    string(REPLACE ":" ";" name ${name})
    list(GET name 1 variable)
    list(GET name 0 name)
    weft_emulated_program(test_${name}_emulated ${PROJECT_SOURCE_DIR}/tests/test_${name}.c)
    target_link_libraries(test_${name}_emulated PRIVATE weft_test_support)
    weft_emulated_test(${name}_cuda_emulated test_${name}_emulated)
    set_property(TEST ${name}_cuda_emulated APPEND PROPERTY ENVIRONMENT WEFT_${variable}_DEVICE=cuda)
    set_tests_properties(${name}_cuda_emulated PROPERTIES FAIL_REGULAR_EXPRESSION "skipped: ") # a skip is a failure
endforeach()
# The commands of the program with the emulated device, on every family.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    weft_emulated_test(cli_families_cuda_emulated test_cli_families)
    set_property(TEST cli_families_cuda_emulated APPEND PROPERTY
        ENVIRONMENT WEFT_CLI_DEVICE=cuda WEFT_PROGRAM=$<TARGET_FILE:weft_emulated>)
endif()
weft_emulated_test(narrow_linear_cuda_hopper test_narrow_linear_emulated)
set_property(TEST narrow_linear_cuda_hopper APPEND PROPERTY
    ENVIRONMENT WEFT_NARROW_DEVICE=cuda WEFT_EMULATED_CAPABILITY=90 WEFT_NARROW_KERNEL=rows)
weft_emulated_test(bad_data_cuda_hopper test_bad_data_emulated)
set_property(TEST bad_data_cuda_hopper APPEND PROPERTY
    ENVIRONMENT WEFT_BAD_DATA_DEVICE=cuda WEFT_EMULATED_CAPABILITY=90)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    set_tests_properties(curves_cuda_emulated PROPERTIES LABELS long) # takes minutes
    # Samples of the checkpoints, of the engine's requests, and of the families that train; "windows" samples by
    # itself. The long tests take all.
    set_property(TEST models_cuda_emulated APPEND PROPERTY ENVIRONMENT WEFT_MODELS_SHARE=2)
    set_property(TEST engine_cuda_emulated APPEND PROPERTY ENVIRONMENT WEFT_ENGINE_SHARE=16)
    set_property(TEST families_train_cuda_emulated APPEND PROPERTY ENVIRONMENT WEFT_FAMILIES_SHARE=4)
    foreach(row IN ITEMS engine:ENGINE families_train:FAMILIES models:MODELS windows:WINDOWS)
        string(REGEX MATCH "(.*):(.*)" row ${row})
        set(name ${CMAKE_MATCH_1}_cuda_emulated_long)
        weft_emulated_test(${name} test_${CMAKE_MATCH_1}_emulated)
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT WEFT_${CMAKE_MATCH_2}_DEVICE=cuda WEFT_ALL_CASES=1)
        set_tests_properties(${name} PROPERTIES TIMEOUT 7200 LABELS long FAIL_REGULAR_EXPRESSION "skipped: ")
    endforeach()
    # The engine's requests on Hopper's kernels, which take longer to emulate.
    weft_emulated_test(engine_cuda_hopper test_engine_emulated)
    set_property(TEST engine_cuda_hopper APPEND PROPERTY
        ENVIRONMENT WEFT_ENGINE_DEVICE=cuda WEFT_ENGINE_SHARE=64 WEFT_EMULATED_CAPABILITY=90)
    # Batch exactness, for both generations of kernels: a sample, and in the long tests all cases.
    foreach(row IN ITEMS cuda_hopper:90: cuda_emulated_long:80:WEFT_ALL_CASES=1 cuda_hopper_long:90:WEFT_ALL_CASES=1)
        string(REGEX MATCH "(.*):(.*):(.*)" row ${row})
        set(name exact_${CMAKE_MATCH_1})
        set(variables WEFT_EXACT_DEVICE=cuda WEFT_EMULATED_CAPABILITY=${CMAKE_MATCH_2} ${CMAKE_MATCH_3})
        weft_emulated_test(${name} test_exact_emulated)
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${variables})
    endforeach()
    set_tests_properties(exact_cuda_emulated_long exact_cuda_hopper_long PROPERTIES TIMEOUT 7200 LABELS long)
endif()

# Applies the walk-throughs of docs/architecture.md and compiles the emulated device again: takes minutes.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
    add_test(NAME walkthrough_cuda_emulated_long
        COMMAND tests/walkthrough.sh --emulated ${CMAKE_COMMAND}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(walkthrough_cuda_emulated_long PROPERTIES TIMEOUT 7200 LABELS long PROCESSORS 2
        ENVIRONMENT "CC=${CMAKE_C_COMPILER}")
endif()

# Tests of the emulator.
foreach(name IN ITEMS emulator emulator_hopper)
    set(test_object)
    weft_emulate(test_object emulated ${PROJECT_SOURCE_DIR}/tests/test_${name}.cu)
    weft_emulator_program(test_${name} ${test_object})
    weft_emulated_test(${name} test_${name})
endforeach()

# Matmuls through an emulated cuBLASLt (tests/emulator/cublaslt.cu).
weft_emulate(products_test_object emulated ${PROJECT_SOURCE_DIR}/tests/test_cuda_products.cu)
weft_emulated_program(test_cuda_products ${products_test_object})
target_link_libraries(test_cuda_products PRIVATE weft_static PkgConfig::CMOCKA)
weft_emulated_test(cuda_products test_cuda_products)
set(ops matmul linear_act matmul_act_grad linear_grad_weight head_loss)
# Sanitized, each op takes half a minute, and test_cuda_products covers the same code.
if(CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    set(ops linear_grad_weight)
endif()
foreach(op IN LISTS ops)
    weft_emulated_test(selftest_cublaslt_${op} weft_emulated selftest --device cuda --fast --op ${op})
    set_property(TEST selftest_cublaslt_${op} APPEND PROPERTY ENVIRONMENT WEFT_CUBLASLT=emulated)
endforeach()
