#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_baseline.sh BUILD
# Looks for instructions that not every x86-64 has in what runs on every one: all objects but the kernels of
# instruction sets, which are chosen when the program starts. Other architectures are not looked at.
set -eu
folder=$1/CMakeFiles
[ -d "$folder/weft_simd_avx2.dir" ] || exit 0

found=$(find "$folder/weft_objects.dir" "$folder/weft_cli.dir" -name '*.o' -exec objdump -d --no-show-raw-insn {} + |
    awk '/file format/ { file = $1 } /%[yz]mm|\tv[a-z0-9]+ .*%xmm/ && n++ < 5 { print file $0 }')
if [ -n "$found" ]; then
    echo "Instructions that a plain x86-64 does not have:"
    echo "$found"
    exit 1
fi
