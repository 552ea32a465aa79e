#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/fetch.sh start|wait
# Fetches files for optional tests (PJRT plugin, model, Python packages) in the background. "start" returns
# at once. "wait" waits until the downloads end and prints their messages. A failed download is not an error:
# the tests are skipped. Each start uses a new folder, because downloads of an interrupted run may still run.
# WEFT_FETCH_SECONDS limits the wait for each download; the default is 600 seconds.
set -eu
cd "$(dirname "$0")/.."
folder=build-fetch

# usage: fetch WHAT RUN. Two runs never fetch the same thing at the same time.
fetch() {
    status=0
    if command -v flock >/dev/null; then
        flock "$folder/$1.lock" "tools/fetch_$1.sh" "build-$1" || status=$?
    else
        "tools/fetch_$1.sh" "build-$1" || status=$?
    fi
    echo "$status" >"$2/$1.status" && mv "$2/$1.status" "$2/$1.done"
}

case ${1-} in
start)
    mkdir -p "$folder"
    rm -rf "$folder"/run.*
    run=$(mktemp -d "$folder/run.XXXXXX")
    echo "$run" >"$folder/current"
    for what in pjrt models python; do
        fetch $what "$run" >"$run/$what.log" 2>&1 </dev/null &
    done
    ;;
wait)
    if [ ! -e "$folder/current" ]; then
        for what in pjrt models python; do
            "tools/fetch_$what.sh" "build-$what"
        done
        exit
    fi
    run=$(cat "$folder/current")
    for what in pjrt models python; do
        limit=${WEFT_FETCH_SECONDS:-600}
        left=$limit
        while [ ! -e "$run/$what.done" ] && [ -d "$run" ] && [ "$left" -gt 0 ]; do
            sleep 1
            left=$((left - 1))
        done
        if ! cat "$run/$what.log" 2>/dev/null; then
            echo "A later tools/fetch.sh start replaced these downloads. Tests whose files are missing are skipped."
            exit
        fi
        if [ ! -e "$run/$what.done" ]; then
            echo "tools/fetch_$what.sh has not ended after $limit s. Tests that need build-$what are skipped."
        elif [ "$(cat "$run/$what.done")" != 0 ]; then
            echo "tools/fetch_$what.sh failed with status $(cat "$run/$what.done"). Tests that need build-$what are skipped."
        fi
    done
    rm -rf "$run" "$folder/current"
    ;;
*) echo "usage: tools/fetch.sh start|wait" >&2 && exit 2 ;;
esac
