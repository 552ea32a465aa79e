#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_threads.sh BUILD
# Builds tests of code that runs in several threads with the thread sanitizer in the tree BUILD, and runs them:
# the thread pool, the loader of training data, a generator with several sequences, and a sample of all ops.
# cmake/thread.cmake lists the folders that are instrumented.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 1 ] || { echo "usage: tools/check_threads.sh BUILD" >&2 && exit 2; }
cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Thread -DWEFT_TESTS=ON -DWEFT_CUDA=OFF \
    -DWEFT_EMULATOR_CXX=NO >/dev/null
cmake --build "$1" --target test_thread test_loader test_models test_selftest

# gcc's runtime fails with the address space randomization of some Linux kernels.
fixed="setarch $(uname -m) -R"
$fixed true 2>/dev/null || fixed=
export TSAN_OPTIONS=halt_on_error=1 WEFT_THREADS=3

# check BUILD NAME [FILTER]: runs the tests of tests/test_NAME.c whose names match, at least one.
check() {
    $fixed "$1/tests/test_$2" ${3:+"$3"} >"$1/$2.log" 2>&1 && grep -q '^\[  *OK ' "$1/$2.log" || {
        cat "$1/$2.log"
        echo "check_threads: test_$2 failed under the thread sanitizer"
        exit 1
    }
}
check "$1" thread
check "$1" loader
check "$1" models '*sequences*' # prompts in chunks, batches of five, sampling, reused pages
check "$1" selftest test_all_ops_on_the_cpu
echo "check_threads: no data races"
