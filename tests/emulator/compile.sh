#!/bin/sh
# SPDX-License-Identifier: MIT
# compile.sh AWK DEPFILE OUTPUT SOURCE COMPILER FLAGS...
# Compiles CUDA C for the host: preprocesses the source, rewrites its __shared__ variables
# (shared.awk), and compiles the result.
set -e
awk=$1 deps=$2 output=$3 source=$4
shift 4
here=$(dirname "$0")
"$@" -x c++ -E -MD -MF "$deps" -MT "$output" "$source" -o "$output.ii"
"$awk" -f "$here/shared.awk" "$output.ii" >"$output.shared.ii"
"$@" -x c++-cpp-output -c "$output.shared.ii" -o "$output"
rm -f "$output.ii" "$output.shared.ii"
