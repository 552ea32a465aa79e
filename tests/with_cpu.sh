#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tests/with_cpu.sh SET COMMAND...
# Runs the command with the cpu kernels of one instruction set, WEFT_CPU=SET. Exits 77, which ctest
# counts as skipped, when the machine does not support the set. WEFT_PROGRAM is the weft program.
set -eu
export WEFT_CPU="$1"
shift
case $("$WEFT_PROGRAM" devices) in
*"WEFT_CPU=$WEFT_CPU is not available on this machine"*)
    echo "skipped: this machine does not have $WEFT_CPU"
    exit 77
    ;;
esac
exec "$@"
