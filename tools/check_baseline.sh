#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_baseline.sh BUILD
# Checks that no object contains AVX instructions, except the vector kernels, which the program selects at run
# time. So the program starts on every x86-64. Other architectures are not checked.
# Also checks that the compiler keeps the prefetches of the kernels.
set -eu
folder=$1/CMakeFiles
[ -d "$folder/weft_simd_avx2.dir" ] || exit 0

found=$(find "$folder/weft_objects.dir" "$folder/weft_cli.dir" -name '*.o' -exec objdump -d --no-show-raw-insn {} + |
    awk '/file format/ { file = $1 } /%[yz]mm|\tv[a-z0-9]+ .*%xmm/ && n++ < 5 { print file $0 }')
if [ -n "$found" ]; then
    echo "These objects contain AVX instructions outside the vector kernels; move the code to src/device/cpu/simd:"
    echo "$found"
    exit 1
fi

# gcc drops prefetches in functions without another effect. Decode is then half as fast.
if ! find "$1/CMakeFiles/weft_simd_avx2.dir" -name 'gemm_run.c.o' -exec objdump -d {} + | grep prefetcht0 >/dev/null; then
    echo "The compiler dropped the prefetches of src/device/cpu/simd/gemm_few.h; issue them by an asm statement."
    exit 1
fi
