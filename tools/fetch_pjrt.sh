#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/fetch_pjrt.sh DIR
# Fetches a PJRT plugin for CPUs, DIR/xla_cpu_pjrt.so, from PyPI's package xla-cpu-pjrt (60 MB, Linux on
# x86-64). If the download fails, prints a line and succeeds; the tests that need the plugin are skipped.
set -eu
version=0.0.1
sum=55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc

[ $# -eq 1 ] || { echo "usage: tools/fetch_pjrt.sh DIR" >&2 && exit 2; }
plugin=$1/xla_cpu_pjrt.so
[ ! -f "$plugin" ] || exit 0

skip() {
    echo "No PJRT plugin: $1. Tests that need one are skipped."
    exit 0
}

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || skip "PyPI has no plugin for this machine"
python3 -m pip --version >/dev/null 2>&1 || skip "python3 with pip is needed to fetch it"
mkdir -p "$1"
scratch=$(mktemp -d "$1/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
echo "Fetching the PJRT plugin of xla-cpu-pjrt $version from PyPI."
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$scratch" "xla-cpu-pjrt==$version" </dev/null >"$scratch/log" 2>&1 ||
    skip "pip could not download it"
wheel=$(find "$scratch" -name '*.whl')
echo "$sum  $wheel" | sha256sum -c >/dev/null 2>&1 || skip "the checksum of the package differs"
python3 -m zipfile -e "$wheel" "$scratch/wheel" || skip "the package could not be unpacked"
mv "$scratch/wheel/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so" "$plugin"
