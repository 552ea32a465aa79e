#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/slowest.sh NAME=FILE.xml...
# Prints the five slowest tests of each ctest run, in seconds. FILE.xml is what `ctest --output-junit` wrote
# (ctest 3.21 or later); ctest's own cost data averages several runs.
set -eu
[ $# -gt 0 ] || { echo "usage: tools/slowest.sh NAME=FILE.xml..." >&2 && exit 2; }
for run in "$@"; do
    file=${run#*=}
    [ -f "$file" ] || { echo "slowest.sh: cannot read '$file'; ctest --output-junit writes it" >&2 && exit 1; }
    echo "Slowest tests of ${run%%=*}, in seconds:"
    sed -n 's/^[[:blank:]]*<testcase name="\([^"]*\)".* time="\([0-9.e+-]*\)" status="\(run\|fail\)".*/\2 \1/p' "$file" |
        LC_ALL=C sort -rg | head -n 5 | awk '{ printf "  %7.1f  %s\n", $1, $2 }'
done
