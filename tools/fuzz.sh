#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/fuzz.sh BUILD SECONDS [NAME ...]
# Runs the fuzz targets of a build tree, all of them unless some are named, one after the other. What they
# find interesting goes to BUILD/corpus/NAME, what fails to BUILD/failed/NAME-*; the first failure ends it.
set -eu
build=$1
seconds=$2
shift 2
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
    for source in tests/fuzz/*.c; do
        name=$(basename "$source" .c)
        [ "$name" = replay ] || set -- "$@" "$name"
    done
fi

for name; do
    new=$build/corpus/$name
    mkdir -p "$new" "$build/failed"
    # Texts have words that chance does not find; a target may come with a list of them.
    dictionary=tests/fuzz/$name.dict
    [ -e "$dictionary" ] || dictionary=tests/fuzz/json.dict
    echo "fuzz_$name for $seconds seconds"
    if ! "$build/fuzz_$name" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -timeout=10 \
        -print_final_stats=1 -dict="$dictionary" -artifact_prefix="$build/failed/$name-" \
        "$new" "tests/fuzz/corpus/$name" >"$build/failed/$name.log" 2>&1; then
        tail -n 60 "$build/failed/$name.log"
        echo "fuzz_$name failed; the input is $build/failed/$name-*, to run it: $build/fuzz_$name FILE"
        exit 1
    fi
    rm -f "$build/failed/$name.log.old"
    grep -E 'DONE|stat::number_of_executed|stat::peak' "$build/failed/$name.log"
done
