#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_arm.sh BUILD PROGRAM
# Runs what was compiled for arm64 in BUILD under qemu: the vectors, every op with each set of kernels, and
# models, which must continue a text as PROGRAM does, the same for this machine.
set -eu
cd "$(dirname "$0")/.."
build=$1
program=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# on CPU COMMAND...: runs it as that processor does; arm COMMAND...: as one that has everything.
on() {
    cpu=$1
    shift
    qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu "$cpu" "$@"
}
arm() {
    on max "$@"
}

# The list is in what is said about a set that does not exist.
sets=$(WEFT_CPU=none arm "$build/weft" devices | sed -n 's/,//g; s/^cpu .*use one of: //p')
case $sets in
*neon*) ;;
*) echo "check_arm: $build/weft has no kernels for NEON" && exit 1 ;;
esac

# expect CPU TITLE: which kernels such a processor is given.
expect() {
    if ! on "$1" "$build/weft" devices | grep -q "^cpu  *[0-9]*  $2, "; then
        echo "check_arm: a $1 is not given the $2" && exit 1
    fi
}
expect cortex-a53 'NEON kernels'
expect cortex-a76 'NEON kernels with dot products'
expect max 'NEON kernels with dot products and bf16'

# text MODEL COMMAND...: the greedy text of the program that the command runs.
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
            echo "check_arm: $1 is continued differently on arm64 with WEFT_CPU=$set"
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
    "$program" quantize tests/fixtures/models/llama "$scratch/$type.gguf" $type --pure >"$scratch/said" 2>&1
    compare "$scratch/$type.gguf"
done
echo "check_arm: $compared models are continued as here by all sets: $sets"
for set in $sets; do
    export WEFT_CPU="$set"
    [ "$set" = reference ] || arm "$build/weft" selftest
done
