# SPDX-License-Identifier: MIT
# usage: cmake -D SOURCE_DIR= -D OUTPUT= -D WF_BUILD_TYPE= -D WF_COMPILER= [-D GIVEN_COMMIT=] -P build_header.cmake
# Writes weft_build.h with the commit, the build type and the compiler. GIVEN_COMMIT is for
# trees whose git history is missing or is not theirs.

set(WF_COMMIT unknown)

# Use the commit only if SOURCE_DIR is the root of its checkout: an unpacked archive may be inside another one.
execute_process(
    COMMAND git -C ${SOURCE_DIR} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
file(REAL_PATH ${SOURCE_DIR} here)
if(GIVEN_COMMIT)
    set(WF_COMMIT ${GIVEN_COMMIT})
elseif(status EQUAL 0 AND top STREQUAL here)
    execute_process(
        COMMAND git --no-optional-locks -C ${SOURCE_DIR}
            describe --always --dirty --abbrev=9 --exclude=*
        OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
        set(WF_COMMIT ${commit})
    endif()
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/weft_build.h.in ${OUTPUT} @ONLY)
