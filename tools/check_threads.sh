#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_threads.sh BUILD [CMAKE_FLAGS...]
# Builds tests of code that runs in several threads with the thread sanitizer in the tree BUILD, and runs them:
# the thread pool, the loader of training data, samplers, an engine with several sequences, and a sample of all ops.
# cmake/thread.cmake lists the folders that are instrumented.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: tools/check_threads.sh BUILD [CMAKE_FLAGS...]" >&2 && exit 2; }
build=$1
shift
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Thread -DWEFT_TESTS=ON -DWEFT_CUDA=OFF \
    -DWEFT_EMULATOR_CXX=NO "$@" >/dev/null
cmake --build "$build" --target test_thread test_loader test_sample_rows test_models test_engine_crowd test_selftest

# gcc's runtime fails with the address space randomization of some Linux kernels.
fixed="setarch $(uname -m) -R"
$fixed true 2>/dev/null || fixed=
export TSAN_OPTIONS=halt_on_error=1 WEFT_THREADS=3

# check NAME [FILTER]: runs the tests of tests/test_NAME.c whose names match, at least one.
check() {
    $fixed "$build/tests/test_$1" ${2:+"$2"} >"$build/$1.log" 2>&1 && grep -q '^\[  *OK ' "$build/$1.log" || {
        cat "$build/$1.log"
        echo "check_threads: test_$1 failed under the thread sanitizer"
        exit 1
    }
}
check thread
check loader
check sample_rows
check models '*sequences*' # prompts in chunks, batches of five, sampling, reused pages
check engine_crowd random_use # requests that come, go and fail
check selftest test_all_ops_on_the_cpu
echo "check_threads: no data races"
