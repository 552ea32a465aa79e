# SPDX-License-Identifier: MIT
# The build type Thread, for tools/check_threads.sh: the thread sanitizer on the folders that run loops in
# threads. The others are compiled without it and without optimisation, to compile fast. Of these,
# text/train_count.c and model/convert_data.c use threads too, but none of the programs calls them.

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)
list(FILTER sources EXCLUDE REGEX "/src/(base|device|infer|train)/")
set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS -O0 -g0 -fno-sanitize=thread)

foreach(program IN ITEMS test_sample_rows test_models test_selftest)
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/thread/split.c)
    target_link_options(${program} PRIVATE
        LINKER:--wrap=wf_parallel_for LINKER:--wrap=wf_parallel_share)
endforeach()
