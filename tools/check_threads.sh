#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_threads.sh BUILD
# Builds the code that uses threads with the thread sanitizer in the tree BUILD. Tests the thread pool, the loader
# of training data, and a sample of all ops.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 1 ] || { echo "usage: tools/check_threads.sh BUILD" >&2 && exit 2; }
cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Thread -DWEFT_TESTS=ON -DWEFT_CUDA=OFF \
    -DWEFT_EMULATOR_CXX=NO >/dev/null
cmake --build "$1" --target test_thread test_loader weft_cli

# gcc's runtime fails with the address space randomization of some Linux kernels.
fixed="setarch $(uname -m) -R"
$fixed true 2>/dev/null || fixed=
export TSAN_OPTIONS=halt_on_error=1 WEFT_THREADS=3
for test in thread loader; do
    $fixed "$1/tests/test_$test" >"$1/$test.log" 2>&1 || {
        cat "$1/$test.log"
        echo "check_threads: test_$test failed under the thread sanitizer"
        exit 1
    }
done
$fixed "$1/weft" selftest --device cpu:3 --sample 150
echo "check_threads: no data races"
