# SPDX-License-Identifier: MIT
# Writes weft_build.h: cmake -D SOURCE_DIR= -D OUTPUT= -D WF_BUILD_TYPE= -D WF_COMPILER= -P this

set(WF_COMMIT unknown)

# An unpacked archive may lie inside somebody else's checkout, whose commit is not ours.
execute_process(
    COMMAND git -C ${SOURCE_DIR} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
file(REAL_PATH ${SOURCE_DIR} here)
if(status EQUAL 0 AND top STREQUAL here)
    execute_process(
        COMMAND git --no-optional-locks -C ${SOURCE_DIR}
            describe --always --dirty --abbrev=9 --exclude=*
        OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
        set(WF_COMMIT ${commit})
    endif()
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/weft_build.h.in ${OUTPUT} @ONLY)
