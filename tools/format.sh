#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/format.sh [--check]
# Formats the C files in place. With --check prints lines that are not formatted and changes nothing.
set -eu
cd "$(dirname "$0")/.."

# Versions of clang-format differ in details, so the project uses one version.
version=14
program=clang-format-$version
command -v "$program" >/dev/null || program=clang-format
found=$("$program" --version | sed 's/.*version \([0-9]*\).*/\1/')

clang_format() {
    find include src tests examples \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -exec "$program" --style=file "$@" {} +
}

if [ $# -eq 0 ]; then
    [ "$found" = "$version" ] || echo "warning: the project uses clang-format $version, this is $found"
    clang_format -i
elif [ "$1" != --check ]; then
    echo "usage: tools/format.sh [--check]" >&2
    exit 2
elif ! clang_format --dry-run --Werror; then
    if [ "$found" = "$version" ]; then
        echo "These lines are not formatted; run \"make format\"."
        exit 1
    fi
    echo "Not counted as a failure: the project uses clang-format $version, this is $found."
fi
