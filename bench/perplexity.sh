#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: bench/perplexity.sh MODEL.gguf TEXT [BYTES]
# Requantizes a model to every type and prints a table of perplexities by `weft eval` over the first
# BYTES (16384) of the text, in windows of 512 tokens. Runs build/weft, or $WEFT. From an already
# quantized model the types can only be compared with each other: the earlier loss remains.
set -eu
[ $# -ge 2 ] || { echo "usage: bench/perplexity.sh MODEL.gguf TEXT [BYTES]" >&2 && exit 2; }
weft=${WEFT:-$(dirname "$0")/../build/weft}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
head -c "${3:-16384}" "$2" >"$scratch/text"

# usage: row NAME FILE
row() {
    "$weft" eval "$2" --data "$scratch/text" -c 512 --json 2>/dev/null >"$scratch/json"
    awk -v name="$1" -v bytes="$(stat -c %s "$2")" -F'[:,]' '
        /"counted_tokens"/ { n = $2 } /"loss"/ { loss = $2 } /"perplexity"/ { ppl = $2 } /"bits_per_byte"/ { bpb = $2 }
        END { printf "| %s | %.1f | %.4f | %.2f | %.3f | %d |\n", name, bytes / 1e6, loss, ppl, bpb, n }' "$scratch/json"
}

echo "| type | MB | loss | perplexity | bits/byte | tokens |"
echo "|---|---|---|---|---|---|"
row "as it is" "$1"
for type in f32 f16 bf16 q8_0 q6_K Q4_K_M q4_K q4_1 q4_0; do
    pure=--pure
    [ $type != Q4_K_M ] || pure=
    "$weft" quantize "$1" "$scratch/m.gguf" $type --allow-requantize $pure 2>/dev/null
    row "$type" "$scratch/m.gguf"
    rm "$scratch/m.gguf"
done
