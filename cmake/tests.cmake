# SPDX-License-Identifier: MIT
# Each tests/test_NAME.c is one program and one test called NAME. The other files in tests/ are linked
# into all test programs.

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
    pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
endif()
if(NOT CMOCKA_FOUND)
    message(FATAL_ERROR
        "The tests need cmocka, found through pkg-config: install libcmocka-dev and pkg-config "
        "(\"make deps\" does it on Debian), or configure with -DWEFT_TESTS=OFF.")
endif()

# ctest runs tests in parallel, so each gets two threads by default.
set(environment
    WEFT_THREADS=2
    UBSAN_OPTIONS=print_stacktrace=1
    WEFT_PROGRAM=$<TARGET_FILE:weft_cli>)
if(WEFT_EXAMPLES AND NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    list(APPEND environment WEFT_EXAMPLES=${PROJECT_BINARY_DIR}/examples)
endif()
if(WEFT_EXAMPLES)
    list(APPEND environment WEFT_TEST_EXAMPLES=${PROJECT_BINARY_DIR}/examples)
endif()

# Mock plugins: tests/plugin/NAME.c becomes libNAME.so. tools/fetch_pjrt.sh fetches a real plugin; without
# it the tests that need it are skipped.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/plugin/*.c)
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_library(${name} MODULE ${source})
    set_target_properties(${name} PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(${name} PRIVATE src tests)
endforeach()
list(APPEND environment
    WEFT_TEST_MOCK_PJRT=$<TARGET_FILE:mock_pjrt>
    WEFT_TEST_PJRT=${PROJECT_SOURCE_DIR}/build-pjrt/xla_cpu_pjrt.so)

# The model that tools/fetch_models.sh fetches. Without it the tests that need it are skipped.
list(APPEND environment
    WEFT_TEST_SMOLLM2=${PROJECT_SOURCE_DIR}/build-models/smollm2-135m-instruct-q4_1.gguf)

# Programs that tests in other languages run: tests/tools/NAME.c becomes NAME.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/tools/*.c)
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(tool_${name} ${source})
    set_target_properties(tool_${name} PROPERTIES
        OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/tools)
    target_include_directories(tool_${name} PRIVATE src)
    target_link_libraries(tool_${name} PRIVATE weft_static)
endforeach()

# The Python that tools/fetch_python.sh makes, with reference packages. Without it these tests are skipped.
if(DEFINED ENV{WEFT_TEST_PYTHON})
    set(python $ENV{WEFT_TEST_PYTHON})
else()
    set(python ${PROJECT_SOURCE_DIR}/build-python/bin/python)
endif()
list(APPEND environment
    WEFT_TEST_PYTHON=${python}
    WEFT_TEST_TOKENIZE=$<TARGET_FILE:tool_tokenize>
    WEFT_TEST_LOGITS=$<TARGET_FILE:tool_logits>)

file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.c)
list(FILTER support EXCLUDE REGEX "/test_[^/]*$")
add_library(weft_test_support STATIC ${support})
target_include_directories(weft_test_support PRIVATE src)
target_compile_options(weft_test_support PRIVATE ${WEFT_TEST_OPTIONS})
target_link_libraries(weft_test_support PUBLIC weft_static PkgConfig::CMOCKA)

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/test_*.c)
foreach(source IN LISTS sources)
    get_filename_component(program ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${program})
    add_executable(${program} ${source})
    set_target_properties(${program} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(${program} PRIVATE src)
    target_compile_options(${program} PRIVATE ${WEFT_TEST_OPTIONS})
    target_link_libraries(${program} PRIVATE weft_test_support)
    # Tests run in the root of the source tree: fixtures are tests/fixtures/...
    add_test(NAME ${name} COMMAND ${program} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment}")
endforeach()

# These train for most of a minute on two threads. Beside another test their threads would wait for each other.
set_tests_properties(end_to_end PROPERTIES TIMEOUT 1800 PROCESSORS 2)
set_tests_properties(smollm2_lora PROPERTIES PROCESSORS 2)

# Compares chat templates with jinja2 of the system's Python. Skipped with a message if jinja2 is missing.
find_program(WEFT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(WEFT_PYTHON python3)
if(WEFT_PYTHON)
    add_test(NAME template_oracle
        COMMAND ${WEFT_PYTHON} tests/oracle/templates.py $<TARGET_FILE:tool_render_templates>
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(template_oracle PROPERTIES
        TIMEOUT 600 SKIP_RETURN_CODE 77
        ENVIRONMENT "${environment};PYTHONDONTWRITEBYTECODE=1")

    # Attacks the program with random input for some seconds, with a fresh seed. Sanitized, memory is not checked.
    set(attack_flags)
    if(CMAKE_BUILD_TYPE STREQUAL "Sanitize")
        set(attack_flags --no-memory)
    endif()
    add_test(NAME attack
        COMMAND ${WEFT_PYTHON} tests/oracle/attack.py $<TARGET_FILE:weft_cli> --seconds 5
            ${attack_flags}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(attack PROPERTIES TIMEOUT 600
        ENVIRONMENT "${environment};PYTHONDONTWRITEBYTECODE=1")
endif()

# weft_test_again(NAME PROGRAM VARIABLES...): adds another test of a program, with environment variables.
function(weft_test_again name program)
    add_test(NAME ${name} COMMAND ${program} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment};${ARGN}")
endfunction()

# Whole models on a device with kernels for core ops only.
weft_test_again(parity_core test_parity WEFT_PARITY_DEVICE=core)
weft_test_again(engine_check test_engine WEFT_ENGINE_DEVICE=check WEFT_ENGINE_SHARE=6)
# Kernels that round no activations. Sanitized, the test "windows" covers them: it also runs on a device of
# core ops.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    weft_test_again(windows_reference test_windows WEFT_CPU=reference)
    weft_test_again(models_written_reference test_models_written WEFT_CPU=reference)
endif()

# Whole models and training in narrow types once more, on a PJRT plugin; the tests are skipped without one.
# Release only: nearly all of the time is the plugin's, which is not sanitized. XLA compiles these graphs
# without optimisation and without its fusion emitters, in half to two thirds of the time. selftest_pjrt and the long
# tests use the defaults.
set(unoptimised
    "XLA_FLAGS=--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    set(plugin pjrt:${PROJECT_SOURCE_DIR}/build-pjrt/xla_cpu_pjrt.so)
    set(long pjrt_real_default_long curves_pjrt_all_long)
    foreach(row IN ITEMS parity:PARITY loss_scale:PRECISION optimizer:OPTIMIZER models:MODELS)
        string(REGEX MATCH "(.*):(.*)" row ${row})
        set(device WEFT_${CMAKE_MATCH_2}_DEVICE=${plugin})
        weft_test_again(${CMAKE_MATCH_1}_pjrt test_${CMAKE_MATCH_1} ${device} ${unoptimised})
        weft_test_again(${CMAKE_MATCH_1}_pjrt_default_long test_${CMAKE_MATCH_1} ${device})
        list(APPEND long ${CMAKE_MATCH_1}_pjrt_default_long)
    endforeach()
    set_property(TEST models_pjrt APPEND PROPERTY ENVIRONMENT WEFT_MODELS_SHARE=3)
    weft_test_again(curves_pjrt test_curves WEFT_CURVES_DEVICE=${plugin} ${unoptimised})
    set_property(TEST pjrt_real APPEND PROPERTY ENVIRONMENT ${unoptimised})
    weft_test_again(pjrt_real_default_long test_pjrt_real WEFT_ALL_CASES=1)
    weft_test_again(curves_pjrt_all_long test_curves WEFT_CURVES_DEVICE=${plugin} WEFT_ALL_CASES=1)
    set_tests_properties(${long} PROPERTIES TIMEOUT 7200 LABELS long)
    # A twentieth of the selftest, other cases in each run: all of it takes the plugin several minutes.
    add_test(NAME selftest_pjrt
        COMMAND tests/with_plugin.sh $<TARGET_FILE:weft_cli> selftest --sample 5%
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(selftest_pjrt PROPERTIES
        TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endif()

# Tests that take many minutes have the label "long". `make test` omits them, `make test-long` runs them.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    weft_test_again(resume_kill_long test_resume_kill WEFT_KILLS=240)
    weft_test_again(smollm2_lora_long test_smollm2_lora WEFT_SEEDS=3)
    weft_test_again(exact_all_long test_exact WEFT_ALL_CASES=1)
    weft_test_again(engine_rules_all_long test_engine_rules WEFT_ALL_CASES=1)
    weft_test_again(engine_check_long test_engine WEFT_ENGINE_DEVICE=check)
    set_tests_properties(resume_kill_long smollm2_lora_long exact_all_long engine_rules_all_long engine_check_long
        PROPERTIES TIMEOUT 7200 LABELS long)
else()
    # Sanitized, tests that call wt_cases run a quarter of their cases and print the seed (tests/support.h).
    foreach(source IN LISTS sources)
        file(STRINGS ${source} calls REGEX "wt_cases[(]" LIMIT_COUNT 1)
        if(calls)
            get_filename_component(program ${source} NAME_WE)
            string(REGEX REPLACE "^test_" "" name ${program})
            weft_test_again(${name}_all ${program} WEFT_ALL_CASES=1)
            set_tests_properties(${name}_all PROPERTIES TIMEOUT 7200 LABELS long)
        endif()
    endforeach()
    set_property(TEST resume_kill APPEND PROPERTY ENVIRONMENT WEFT_KILLS=2)
endif()

# Tests of the vector type and the kernels of each instruction set. Skipped with a message if the machine
# lacks the set. The test "selftest" uses the best set; only this one is sanitized.
# weft_test_on(SET NAME PROGRAM ARGUMENTS...): adds the test NAME_SET with WEFT_CPU=SET.
function(weft_test_on set name program)
    add_test(NAME ${name}_${set}
        COMMAND tests/with_cpu.sh ${set} $<TARGET_FILE:${program}> ${ARGN}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_${set} PROPERTIES
        TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endfunction()
foreach(set IN LISTS WEFT_SIMD_SETS)
    set_target_properties(vectors_${set} PROPERTIES EXCLUDE_FROM_ALL OFF)
    weft_test_on(${set} vectors vectors_${set})
endforeach()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    # One of these is the best set, which `selftest` would test once more.
    set_property(TEST selftest APPEND PROPERTY ENVIRONMENT WEFT_SKIP_TEST=test_all_ops_on_the_cpu)
    foreach(set IN LISTS WEFT_SIMD_SETS WEFT_TILE_SETS ITEMS reference)
        weft_test_on(${set} selftest test_selftest test_all_ops_on_the_cpu)
        weft_test_on(${set} quant_packed test_quant_packed)
        weft_test_on(${set} engine test_engine)
        weft_test_on(${set} kv_blocks test_kv_blocks)
        weft_test_on(${set} exact test_exact)
        # The tests "engine" and "exact" run all cases of the best set, and these a share of them.
        set_property(TEST engine_${set} APPEND PROPERTY ENVIRONMENT WEFT_ENGINE_SHARE=6)
        set_property(TEST exact_${set} APPEND PROPERTY ENVIRONMENT WEFT_EXACT_SAMPLE=1)
        foreach(name IN ITEMS engine exact)
            add_test(NAME ${name}_${set}_long
                COMMAND tests/with_cpu.sh ${set} $<TARGET_FILE:test_${name}> WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
            set_tests_properties(${name}_${set}_long PROPERTIES TIMEOUT 7200 LABELS long SKIP_RETURN_CODE 77
                ENVIRONMENT "${environment}")
        endforeach()
    endforeach()
endif()

if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    add_test(NAME evidence COMMAND tests/evidence.sh $<TARGET_FILE:weft_cli>
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(evidence PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()

# Applies the walk-throughs of docs/architecture.md to a copy of the tree and tests the new ops: 20 s of CPU time.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
    add_test(NAME walkthrough COMMAND tests/walkthrough.sh ${WEFT_GENERATED}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(walkthrough PROPERTIES TIMEOUT 600 PROCESSORS 2
        ENVIRONMENT "${environment};CC=${CMAKE_C_COMPILER}")
endif()

# Not in Sanitize: a program that is not sanitized cannot load a sanitized library.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    add_test(NAME install_check
        COMMAND ${PROJECT_SOURCE_DIR}/tools/install_check.sh
            ${PROJECT_BINARY_DIR} ${PROJECT_VERSION} ${CMAKE_GENERATOR})
    set_tests_properties(install_check PROPERTIES
        TIMEOUT 600 ENVIRONMENT "CC=${CMAKE_C_COMPILER};CMAKE=${CMAKE_COMMAND}")
endif()
