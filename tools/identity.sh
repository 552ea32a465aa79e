#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/identity.sh PROGRAM [MODEL.gguf]
# Prints one line per result of PROGRAM: a name and a SHA-256. Two programs that print the same lines
# compute the same bits. Covers trained weights and losses (optimizers, precisions, recompute,
# adapters), conversion and quantization. Covers greedy text and evaluation of MODEL and of the models
# in tests/fixtures. Covers each op's worst selftest error with a fixed seed, on every instruction set
# of this machine. To compare a refactored program with the old one, on one machine:
#   tools/identity.sh old/weft >before; tools/identity.sh build/weft >after; diff before after
set -eu
[ $# -ge 1 ] || { echo "usage: tools/identity.sh PROGRAM [MODEL.gguf]" >&2 && exit 2; }
program=$(realpath "$1")
model=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
fixtures=tests/fixtures/models
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export WEFT_THREADS=2 LC_ALL=C

# hash NAME: prints NAME and the hash of stdin.
hash() {
    printf '%s %s\n' "$1" "$(sha256sum | cut -c 1-32)"
}

# tensors FOLDER: prints a safetensors checkpoint without its headers, which contain the program's version.
tensors() {
    [ -d "$1" ] || { echo "identity: $1 is missing" >&2 && exit 1; }
    for file in "$1"/model*.safetensors "$1"/adapter*.safetensors; do
        [ -e "$file" ] || continue
        size=$(od -An -tu8 -N8 "$file" | tr -d ' ')
        tail -c "+$((size + 9))" "$file"
    done
}

# checkpoint NAME COMMAND FLAGS...: hashes the weights and the logged losses of a run.
checkpoint() {
    name=$1
    shift
    "$program" "$@" --data "$scratch/data" --out "$scratch/run" --batch 4 --length 64 --steps 12 \
        --save-every 12 --log-every 1 --seed 7 --export none --quiet
    tensors "$scratch"/run/step-*12 | hash "weights $name"
    grep -o '"loss": *[0-9.e+-]*' "$scratch/run/log.jsonl" | hash "losses $name"
    rm -rf "$scratch/run"
}

# Sentences that change slowly, so that the model can learn.
awk 'BEGIN { for (i = 0; i < 4000; i++) print "the", i % 7, "weavers of", i % 31, "looms count", i, "threads." }' \
    >"$scratch/text.txt"
"$program" prepare "$scratch/text.txt" --tokenizer $fixtures/llama --split-on '\n' -o "$scratch/data" --quiet

train() {
    name=$1
    shift
    checkpoint "$name" train --depth 2 "$@"
}
for optimizer in adamw muon lion sgd; do
    train "$optimizer" --optimizer $optimizer
done
for type in f16 bf16; do
    train "$type" --compute $type
done
train recompute --recompute 1
train accumulate --accumulate 2 --dropout 0.1 --ema 0.9
train documents --documents --z-loss 1e-4 --label-smoothing 0.1
for family in llama qwen3 gpt2; do
    checkpoint "finetune $family" finetune $fixtures/$family
    checkpoint "lora $family" finetune $fixtures/$family --lora 4
done

# model NAME PATH: hashes greedy text and the loss of a text.
model() {
    "$program" run "$2" 'the 3 weavers of' -n 48 --temp 0 --ignore-eos --quiet | hash "text $1"
    head -c 1500 "$scratch/text.txt" | "$program" eval "$2" --data - -c 128 --json --quiet |
        sed '/seconds\|_per_\|commit\|command\|model"/d' | hash "eval $1"
}
for family in "$fixtures"/*; do
    model "${family##*/}" "$family"
    "$program" convert "$family" "$scratch/model.gguf" >/dev/null 2>&1
    tail -c 100000 "$scratch/model.gguf" | hash "gguf ${family##*/}"
    rm "$scratch/model.gguf"
done
for type in q8_0 q6_K Q4_K_M q4_K q4_1 q4_0 f16 bf16; do
    "$program" quantize $fixtures/llama "$scratch/$type.gguf" $type --pure >/dev/null 2>&1
    tail -c 100000 "$scratch/$type.gguf" | hash "quantized $type"
    model "$type" "$scratch/$type.gguf"
    checkpoint "lora $type" finetune "$scratch/$type.gguf" --lora 4
done
if [ -n "$model" ]; then
    model smollm2 "$model"
    "$program" run "$model" 'The capital of France is' -n 32 --temp 0.8 --seed 3 --quiet | hash 'sampled smollm2'
fi

# Only f32: in narrow types the last rounding hides differences.
for set in reference avx2 avx512 amx neon dotprod i8mm; do
    WEFT_CPU=$set "$program" selftest --op add >/dev/null 2>&1 || continue
    WEFT_CPU=$set "$program" selftest --seed 7 --type f32 --json | grep '"op"\|worst_ratio' | hash "selftest $set"
    for type in q8_0 q6_K q4_K q4_1 q4_0 f16 bf16; do
        export WEFT_CPU=$set
        model "$type $set" "$scratch/$type.gguf"
        unset WEFT_CPU
    done
done
"$program" selftest --device check --seed 7 --type f32 --json | grep '"op"\|worst_ratio' | hash "selftest check"
