# SPDX-License-Identifier: MIT
# Each tests/fuzz/NAME.c is a fuzz target. WEFT_FUZZ builds the program fuzz_NAME, which libFuzzer runs.
# WEFT_TESTS builds the program replay_NAME, which needs no clang. The test fuzz_NAME runs it on the corpus
# and on damaged copies of the corpus.

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.c)
list(FILTER sources EXCLUDE REGEX "/replay\\.c$")
if(WEFT_FUZZ)
    add_custom_target(fuzz)
endif()
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    if(WEFT_FUZZ)
        add_executable(fuzz_${name} ${source})
        target_include_directories(fuzz_${name} PRIVATE src)
        target_link_libraries(fuzz_${name} PRIVATE weft_static)
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
        add_dependencies(fuzz fuzz_${name})
    endif()
    if(WEFT_TESTS)
        add_executable(replay_${name} ${source} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
        set_target_properties(replay_${name} PROPERTIES
            RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
        target_include_directories(replay_${name} PRIVATE src)
        target_compile_options(replay_${name} PRIVATE ${WEFT_TEST_OPTIONS})
        target_link_libraries(replay_${name} PRIVATE weft_static)
        set(folders tests/fuzz/corpus/${name})
        if(name STREQUAL "template")
            list(APPEND folders tests/fixtures/templates)
        endif()
        add_test(NAME fuzz_${name} COMMAND replay_${name} ${folders}
            WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
        set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment}")
    endif()
endforeach()
