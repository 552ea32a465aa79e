#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/fetch_python.sh DIR
# Makes a Python environment in DIR with the packages that tests compare Weft with: tokenizers and numpy.
# If the installation fails, prints a line and succeeds; the tests that need the packages are skipped.
set -eu
packages="tokenizers==0.22.1 numpy==2.2.6"

[ $# -eq 1 ] || { echo "usage: tools/fetch_python.sh DIR" >&2 && exit 2; }
[ ! -f "$1/packages" ] || [ "$(cat "$1/packages")" != "$packages" ] || exit 0

dir=$1
skip() {
    echo "No Python packages: $1. Tests that need them are skipped."
    rm -rf "$dir"
    exit 0
}

rm -rf "$dir"
python3 -m venv --without-pip "$dir" >/dev/null 2>&1 || skip "python3 with venv is needed to install them"
echo "Installing $packages from PyPI for the tests."
# --no-deps: tokenizers depends on a package that downloads models, which the tests do not need.
# The system's pip installs: another one takes 4 s of processor time to set up, and compiled files as long.
python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --no-compile \
    --target "$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" $packages \
    </dev/null >"$dir/log" 2>&1 || skip "pip could not install them"
printf '%s' "$packages" >"$dir/packages"
