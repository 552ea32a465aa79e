#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_arm.sh BUILD PROGRAM
# Tests the arm64 programs of BUILD under qemu: the vector type, models, and every op with each instruction
# set. Models must continue a text exactly as PROGRAM, the weft program of this machine.
set -eu
cd "$(dirname "$0")/.."
build=$1
program=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# on CPU COMMAND...: emulates this processor. arm COMMAND...: emulates a processor with all features.
on() {
    cpu=$1
    shift
    qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu "$cpu" "$@"
}
arm() {
    on max "$@"
}

# The error message for an unknown instruction set lists all sets.
sets=$(WEFT_CPU=none arm "$build/weft" devices | sed -n 's/,//g; s/^cpu .*use one of: //p')
case $sets in
*neon*) ;;
*) echo "check_arm: $build/weft has no kernels for NEON" && exit 1 ;;
esac

# expect CPU TITLE: fails unless weft selects the kernels TITLE on this processor.
expect() {
    if ! on "$1" "$build/weft" devices | grep -q "^cpu  *[0-9]*  $2, "; then
        echo "check_arm: weft does not select $2 on a $1" && exit 1
    fi
}
expect cortex-a53 'NEON kernels'
expect cortex-a76 'NEON kernels with dot products'
expect max 'NEON kernels with dot products and bf16'

# text MODEL COMMAND...: prints the greedy text that COMMAND generates with the model.
text() {
    model=$1
    shift
    "$@" run "$model" -p 'the weft' -n 24 --temp 0 --ignore-eos -q
}

compare() {
    text "$1" "$program" >"$scratch/here"
    for set in $sets; do
        export WEFT_CPU="$set"
        if ! text "$1" arm "$build/weft" | cmp -s "$scratch/here" -; then
            echo "check_arm: $1 generates another text on arm64 with WEFT_CPU=$set"
            exit 1
        fi
        unset WEFT_CPU
    done
    compared=$((compared + 1))
}

for set in $sets; do
    [ "$set" = reference ] || arm "$build/tests/vectors_$set"
done
compared=0
for model in tests/fixtures/models/*/; do
    compare "${model%/}"
done
for type in f16 bf16 q8_0 q6_K q4_K q4_1 q4_0; do
    "$program" quantize tests/fixtures/models/llama "$scratch/$type.gguf" $type --pure >"$scratch/log" 2>&1
    compare "$scratch/$type.gguf"
done
echo "check_arm: $compared models generate the same text as on this machine with all sets: $sets"
for set in $sets; do
    export WEFT_CPU="$set"
    [ "$set" = reference ] || arm "$build/weft" selftest
done
