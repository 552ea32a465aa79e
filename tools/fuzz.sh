#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/fuzz.sh BUILD SECONDS [NAME ...]
#        tools/fuzz.sh BUILD merge [NAME ...]
# Runs the fuzz targets NAME of a build tree, by default all, one after the other. New inputs are written to
# BUILD/corpus/NAME. "merge" copies small inputs from there to tests/fuzz/corpus/NAME if they reach new code.
# A failing input is written to BUILD/failed/NAME-*. The first failure ends the run.
set -eu
cd "$(dirname "$0")/.."
build=$1
seconds=$2
shift 2

if [ $# -eq 0 ]; then
    for source in tests/fuzz/*.c; do
        name=$(basename "$source" .c)
        [ "$name" = replay ] || set -- "$@" "$name"
    done
fi

for name; do
    target=$build/fuzz_$name
    kept=tests/fuzz/corpus/$name
    new=$build/corpus/$name
    log=$build/fuzz_$name.log
    mkdir -p "$new" "$build/failed"
    if [ "$seconds" = merge ]; then
        "$target" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$kept" "$new" >"$log" 2>&1
        # Merged files follow the old ones, in the order of the coverage that each adds. Keep the first 200.
        ls -tr "$kept" | tail -n +201 | while IFS= read -r file; do rm "$kept/$file"; done
        echo "$kept: $(find "$kept" -type f | wc -l) files, $(cat "$kept"/* | wc -c) bytes"
        continue
    fi
    # Words that random mutation does not find.
    dictionary=tests/fuzz/$name.dict
    more=
    [ "$name" != template ] || more=tests/fixtures/templates
    echo "fuzz_$name for $seconds seconds"
    if ! "$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -timeout=10 \
        -print_final_stats=1 -dict="$dictionary" -artifact_prefix="$build/failed/$name-" \
        "$new" "$kept" $more >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "fuzz_$name failed; the input is $build/failed/$name-*; run it with: $target FILE"
        exit 1
    fi
    grep -E 'DONE|stat::number_of_executed|stat::peak' "$log"
done
