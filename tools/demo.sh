#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/demo.sh BUILD [--record]
# Runs the demo, BUILD/examples/tiny_trainer, on Weft's own source. With --record it also writes a short
# transcript to docs/demo.txt and README.md.
set -eu
cd "$(dirname "$0")/.."
build=$1
cat include/weft.h src/*/*.[ch] >"$build/demo.txt"
if [ "${2:-}" != --record ]; then
    exec "$build/examples/tiny_trainer" "$build/demo.txt"
fi

out=$build/demo.out
"$build/examples/tiny_trainer" "$build/demo.txt" >"$out"
cat "$out"
{
    echo "\$ make demo     # commit $(git rev-parse --short=7 HEAD)"
    # Keep two lines about the run, the first and the last step, and the start of the sample.
    awk '/^step/ { if (first++ == 0) print $0 "\n..."; else last = $0; next }
         last != "" { if (kept++ == 0) print last; if (kept < 5) print; next }
         { print }' "$out"
    echo "..."
} >docs/demo.txt
awk '/^<!-- docs\/demo.txt/ { print; getline; print; while ((getline line <"docs/demo.txt") > 0) print line; skip = 1; next }
     skip && /^```/ { skip = 0 }
     !skip { print }' README.md >"$build/README.md"
cp "$build/README.md" README.md
