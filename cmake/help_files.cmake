# SPDX-License-Identifier: MIT
# usage: cmake -D PROGRAM=weft -D OUTPUT=DIR -P help_files.cmake
# Writes the man pages DIR/man1/*.1 and the completions DIR/bash/weft, DIR/zsh/_weft and DIR/fish/weft.fish.

# print(FILE ARGUMENTS...): runs the program and writes its output to FILE.
function(print file)
    execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${OUTPUT}/${file} RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "${PROGRAM} ${ARGN} failed: ${failed}")
    endif()
endfunction()

file(REMOVE_RECURSE ${OUTPUT})
file(MAKE_DIRECTORY ${OUTPUT}/man1 ${OUTPUT}/bash ${OUTPUT}/zsh ${OUTPUT}/fish)
print(bash/weft completion bash)
print(zsh/_weft completion zsh)
print(fish/weft.fish completion fish)

print(help.txt help)
file(STRINGS ${OUTPUT}/help.txt lines REGEX "^  [a-z]+  ")
print(man1/weft.1 help --man)
foreach(line IN LISTS lines)
    string(REGEX REPLACE "^  ([a-z]+)  .*" "\\1" command ${line})
    print(man1/weft-${command}.1 help ${command} --man)
endforeach()
file(TOUCH ${OUTPUT}/stamp)
