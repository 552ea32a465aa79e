#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/fetch.sh start|wait
# Fetches files for optional tests (PJRT plugin, model, Python packages) in the background. "start" returns
# at once. "wait" waits until the downloads end and prints their messages. A failed download is not an error:
# the tests are skipped.
set -eu
cd "$(dirname "$0")/.."
folder=build-fetch
case ${1-} in
start)
    rm -rf "$folder"
    mkdir -p "$folder"
    for what in pjrt models python; do
        {
            "tools/fetch_$what.sh" "build-$what" || true
            touch "$folder/$what.done"
        } >"$folder/$what.log" 2>&1 </dev/null &
    done
    ;;
wait)
    for what in pjrt models python; do
        [ -d "$folder" ] || "tools/fetch_$what.sh" "build-$what"
        left=600
        while [ -d "$folder" ] && [ ! -e "$folder/$what.done" ] && [ "$left" -gt 0 ]; do
            sleep 1
            left=$((left - 1))
        done
        [ ! -e "$folder/$what.log" ] || cat "$folder/$what.log"
    done
    rm -rf "$folder"
    ;;
*) echo "usage: tools/fetch.sh start|wait" >&2 && exit 2 ;;
esac
