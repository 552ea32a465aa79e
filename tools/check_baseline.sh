#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_baseline.sh BUILD
# Looks for instructions that not every x86-64 has in what runs on every one: all objects but the kernels of
# instruction sets, which are chosen when the program starts. Other architectures are not looked at.
# Also checks that prefetches in kernels survive the compiler.
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

# gcc drops prefetches that it takes for calls without effect, and decoding is half as fast.
if ! find "$1/CMakeFiles/weft_simd_avx2.dir" -name 'gemm_run.c.o' -exec objdump -d {} + | grep prefetcht0 >/dev/null; then
    echo "The compiler dropped the prefetches of src/device/cpu/simd/gemm_few.h."
    exit 1
fi
