#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/test.sh [CMAKE_FLAGS...]
# The body of "make test": checks, a Release tree (build-test) and a sanitized tree (build-sanitize) with their
# tests, and the thread sanitizer (build-thread). The flags are for all three trees.
#
# The sanitized tree compiles at the lowest priority while the Release tests run, and the thread sanitizer runs
# beside the sanitized tests: tests leave processors idle, for example while they wait for a file or at the end
# of a list.
set -eu
cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 1)
logs=$(mktemp -d)
background= # process groups of running commands
trap 'for group in $background; do kill -- "-$group" 2>/dev/null || true; done; rm -rf "$logs"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# run COMMAND...: runs a command as a process group that ends with this script, also when a signal ends it: sh
# handles signals while it waits, but not while a foreground command runs.
run() {
    setsid "$@" </dev/null &
    group=$!
    background="$background $group"
    status=0
    wait $group || status=$?
    forget $group
    return $status
}

# forget GROUP: removes a group that has ended, because its number may be used again.
forget() {
    rest=
    for group in $background; do
        [ "$group" = "$1" ] || rest="$rest $group"
    done
    background=$rest
}

# step COMMAND...: prints a command and runs it.
step() {
    echo "$*"
    run "$@"
}

# later NAME COMMAND...: starts a command in the background, at the lowest priority. It is a process group, which
# ends with this script.
later() {
    name=$1
    shift
    # Linux schedules a session as a group, and niceness counts inside it: lower the group's priority too.
    setsid nice -n 19 sh -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec "$@"' later "$@" \
        >"$logs/$name" 2>&1 </dev/null &
    eval "pid_$name=$!"
    background="$background $!"
}

# finish NAME: waits for a command of "later". Prints its last line, or all lines if it failed, and then exits.
finish() {
    eval "pid=\$pid_$1"
    status=0
    wait "$pid" || status=$?
    forget "$pid"
    if [ $status != 0 ]; then
        cat "$logs/$1"
        echo "make test: $1 failed with status $status"
        exit 1
    fi
    echo "$1: $(tail -n 1 "$logs/$1")"
}

# tests FOLDER: runs the tests of a tree. Those that take many minutes are for "make test-long".
tests() {
    step ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$jobs" -LE long \
        --output-junit "$PWD/$1/junit.xml"
}

tools/fetch.sh start
later checks sh -c 'tools/format.sh --check && tools/check_layers.sh --selftest && tools/check_layers.sh'

# One GPU architecture: each other one takes minutes to compile. Where no GPU can run the kernels, they are
# compiled without most optimisations, which halves the time.
optimize=ON
nvidia-smi >/dev/null 2>&1 || optimize=OFF
step cmake -S . -B build-test -G Ninja -DCMAKE_BUILD_TYPE=Release -DWEFT_TESTS=ON -DWEFT_CUDA_ARCHITECTURES=90a \
    -DWEFT_CUDA_PTX=OFF -DWEFT_CUDA_OPTIMIZE=$optimize "$@"
finish checks
step cmake --build build-test
later sanitized_build sh -c 'cmake -S . -B build-sanitize -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DWEFT_TESTS=ON "$@" &&
    cmake --build build-sanitize' sh "$@"
tools/fetch.sh wait
step tools/check_symbols.sh build-test/libweft.so include/weft.h
step tools/check_baseline.sh build-test
step tools/evidence.sh --quiet build-test/weft
tests build-test
finish sanitized_build
later thread_sanitizer tools/check_threads.sh build-thread "$@"
tests build-sanitize
finish thread_sanitizer

tools/slowest.sh Release=build-test/junit.xml sanitized=build-sanitize/junit.xml
echo
echo "Everything passed: format, layers, exported symbols, claims, all tests in Release," \
    "all tests with the address and undefined-behaviour sanitizers, and the thread sanitizer."
