#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tests/evidence.sh PROGRAM
# Tests tools/evidence.sh in a small repository: it accepts true claims and refuses every kind of
# false claim.
set -eu
command -v git >/dev/null || { echo "skipped: git is missing" && exit 77; }
program=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/tools" "$scratch/bench/results" "$scratch/docs" "$scratch/src/selftest" "$scratch/other"
cp tools/evidence.sh "$scratch/tools"
cd "$scratch"
total=$("$program" selftest --list | tail -n 1)
cases=${total%% *}
ops=${total##* of }
file=bench/results/selftest-cpu.json
echo "selftest-* src/selftest" >bench/results/COVERS
touch CONTRIBUTING.md docs/a.md src/selftest/a.c

export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
commit() { git add -A && git -c commit.gpgsign=false commit -qm "$1"; }
git init -q .
commit first
at=$(git rev-parse --short=9 HEAD)

# result CASES COMMIT: prints a result file
result() {
    printf '{\n"commit": "%s",\n"cases": %d,\n"skipped": 1,\n"failures": 0,\n"ops": [\n' "$2" "$1"
    for _ in $(seq "${ops%% *}"); do printf '{"op": "x", "cases": 1},\n'; done
    printf ']}\n'
}
# claim TEXT: writes README.md
claim() { printf '%s\n' "$1" >README.md; }
holds() { tools/evidence.sh "$program" >out 2>&1 || { echo "refused: $1" && cat out && exit 1; }; }
# refused PART: expects a refusal whose message contains PART
refused() {
    ! tools/evidence.sh --quiet "$program" >out 2>&1 || { echo "not noticed: $1" && exit 1; }
    grep -q "$1" out || { echo "another sentence than: $1" && cat out && exit 1; }
}

link="[result]($file)"
result $((cases - 1)) "$at" >$file
claim "$total pass: $link"
holds "an up-to-date file"
claim "$((cases - 1)) cases of $ops pass"
refused "README.md states"
claim "17 ops"
refused 'README.md states "17 ops"'
claim "17 core ops"
refused 'README.md states "17 core ops"'
echo "17 ops" >docs/a.md
claim "$total pass: $link"
refused 'docs/a.md states "17 ops"'
: >docs/a.md
claim "see [result](bench/results/selftest-gone.json)"
refused "does not exist"
result $((cases - 2)) "$at" >$file
claim "$link"
refused "run it again or drop the claim"
result $((cases - 1)) "$at" | sed 's/"failures": 0/"failures": 2/' >$file
refused "has failures"
result $((cases - 1)) "$at" | grep -v commit >$file
refused "names no commit"
result $((cases - 1)) "$at" >$file
cp $file bench/results/unknown.json
refused "has no row in"
rm bench/results/unknown.json

echo x >other/b.c
commit "something else"
holds "another part of the tree changed"
echo x >src/selftest/a.c
commit "the subject"
refused "without its commit"
claim "$link at ${at%??}"
holds "a dated claim"
grep -q "stale: $file, 1 files" out
result $((cases - 1)) 0123456789 >$file
holds "a commit that this history does not have"
grep -q "unknown: $file" out
rm -rf .git
holds "a tree without history"
grep -q "not a git checkout" out
