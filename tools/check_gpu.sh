#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_gpu.sh BUILD [DEVICE]               run all tests that need a GPU
#        tools/check_gpu.sh BUILD DEVICE --sanitize      run the selftest under compute-sanitizer: memcheck, then
#                                                        racecheck, which needs -DWEFT_CUDA_EVERY_LANE=ON
#
# BUILD is a build folder with tests ("make test" makes build-test). DEVICE is cuda by default. Exits 1 on a failure.
set -eu
build=$1
device=${2:-cuda}
weft=$build/weft
failed=0

log() { printf '== %s\n' "$*"; }

# sanitize TOOL: runs each op in its own process, one per processor at a time, the slowest first. Ops that take
# minutes get one process per type.
sanitize() {
    log "compute-sanitizer --tool $1, every op of the selftest"
    out=$(mktemp -d)
    "$weft" ops --json | sed -n 's/^      "name": "\([a-z0-9_]*\)".*/\1/p' | sort -u |
        awk '/attention|head_loss/ { print $0 " --type bf16\n" $0 " --type f16\n" $0 " --type f32"; next }
             /linear|matmul|norm/ { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }' |
        xargs -P "$(nproc)" -I{} sh -c "compute-sanitizer --tool $1 --error-exitcode 9 \
            '$weft' selftest --device '$device' --op {} > '$out/{}' 2>&1 || echo '{}' >> '$out/FAILED'"
    grep -h '^selftest: [0-9]' "$out"/* | awk '{ cases += $2; ops++ } END { print ops + 0, "processes,", cases + 0, "cases" }'
    grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out"/* | sort | uniq -c | sort -rn | head -5
    if [ -f "$out/FAILED" ]; then
        failed=1
        sort "$out/FAILED" | while read -r op; do
            echo "failed: $op"
            grep -v '^=========' "$out/$op" | tail -4
            grep -m 3 '^========= \(Invalid\|Error\|Warning\|Program\)' "$out/$op" || true
        done
    fi
    rm -rf "$out"
}

if [ "${3:-}" = --sanitize ]; then
    sanitize memcheck
    sanitize racecheck
    exit $failed
fi

log "every op against the reference"
"$weft" selftest --device "$device" || failed=1
log "models, families and training against PyTorch and transformers, guarantees of training, invalid input"
for variable in PARITY CURVES TRAIN BAD_DATA COPIES PRECISION OPTIMIZER MODELS FAMILIES WINDOWS NARROW; do
    export "WEFT_${variable}_DEVICE=$device"
done
for test in parity curves device_train bad_data copies loss_scale optimizer families_train models models_written windows \
    narrow_linear; do
    log "$test"
    "$build/tests/test_$test" || failed=1
done
exit $failed
