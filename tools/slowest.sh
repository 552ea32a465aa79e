#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/slowest.sh BUILD...
# Prints the five slowest tests of the last ctest run in each tree, in seconds.
set -eu
for build in "$@"; do
    echo "Slowest tests of $build, in seconds:"
    sed -n 's/^\([^ ]*\) [0-9]* \([0-9.]*\)$/\2 \1/p' "$build/Testing/Temporary/CTestCostData.txt" |
        sort -rn | head -n 5 | awk '{ printf "  %7.1f  %s\n", $1, $2 }'
done
