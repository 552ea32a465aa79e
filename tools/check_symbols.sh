#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_symbols.sh LIBRARY HEADER
# Checks that the shared library exports exactly the symbols that the public header declares with WF_API, and
# that all begin with wf_.
set -eu
library=$1
header=$2

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

nm -D --defined-only "$library" | awk '{ print $NF }' | sort -u >"$scratch/exported"

# Removes preprocessor lines and comments, then splits declarations at ';'. The name is the first wf_* before a
# parenthesis or, for a variable, the last wf_*.
awk '
    /^[ \t]*#/ || continued { continued = /\\$/; next }
    { text = text $0 " " }
    END {
        while ((start = index(text, "/*"))) {
            rest = substr(text, start + 2)
            text = substr(text, 1, start - 1) " " substr(rest, index(rest, "*/") + 2)
        }
        count = split(text, declarations, ";")
        for (i = 1; i <= count; i++) {
            start = index(declarations[i], "WF_API")
            if (!start)
                continue
            rest = substr(declarations[i], start)
            if (match(rest, /wf_[a-z0-9_]+ *\(/)) {
                name = substr(rest, RSTART, RLENGTH)
                sub(/ *\($/, "", name)
            } else
                while (match(rest, /wf_[a-z0-9_]+/)) {
                    name = substr(rest, RSTART, RLENGTH)
                    rest = substr(rest, RSTART + RLENGTH)
                }
            print name
        }
    }' "$header" | sort -u >"$scratch/declared"

if ! [ -s "$scratch/declared" ]; then
    echo "$header: has no declaration with WF_API; give the public header"
    exit 1
fi
{
    grep -v '^wf_' "$scratch/exported" |
        sed "s|.*|$library: exports &, which does not begin with wf_|" || :
    comm -23 "$scratch/exported" "$scratch/declared" | grep '^wf_' |
        sed "s|.*|$library: exports &, which $header does not declare with WF_API|" || :
    comm -13 "$scratch/exported" "$scratch/declared" |
        sed "s|.*|$header: declares &, which $library does not export|"
} >"$scratch/complaints"
cat "$scratch/complaints"
[ ! -s "$scratch/complaints" ]
