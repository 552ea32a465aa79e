#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/evidence.sh [--quiet | --commands] [PROGRAM]
# Compares the claims of README.md and docs/ with the files in bench/results.
#   - Every file names its commit and has a row in bench/results/COVERS that lists its subject.
#   - Files whose subject changed after their commit are listed. This alone is no failure.
#   - A selftest that a document links must have passed with the number of cases and ops of PROGRAM.
#     Its line must name the file's commit, or the file must be up to date. A line may say "N of M cases" for a
#     file with N cases, skipped ones included, if PROGRAM has M.
#   - "N cases of M ops", "M ops" and "K core ops" in a document must be the numbers of PROGRAM.
# Exits 1 when a claim is wrong. --quiet counts stale files instead of listing them. --commands prints the
# commands that run the selftests again.
# PROGRAM is build-test/weft by default, or build/weft.
set -eu
cd "$(dirname "$0")/.."
results=bench/results
covers=$results/COVERS

if [ "${1:-}" = --commands ]; then
    sed -n 's/^#: //p' "$covers"
    exit 0
fi
list=yes
if [ "${1:-}" = --quiet ]; then
    list=
    shift
fi
program=${1:-}
for candidate in build-test/weft build/weft; do
    [ -n "$program" ] || [ ! -x $candidate ] || program=$candidate
done
[ -n "$program" ] || { echo "evidence: no build-test/weft or build/weft; run make, or give a program" >&2 && exit 2; }
total=$("$program" selftest --list | tail -n 1) # 4745 cases of 84 ops
cases=${total%% *}
ops=${total##* of }
ops=${ops%% *}
core=$("$program" ops | awk '$2 == "core"' | wc -l | tr -d ' ')

failures=0
fail() {
    echo "evidence: $*"
    failures=$((failures + 1))
}

history=yes
git rev-parse -q --verify HEAD >/dev/null 2>&1 || {
    history=
    echo "evidence: this is not a git checkout, so changes after a file's commit are not checked"
}

commit_of() {
    sed -n 's/.*commit"\{0,1\}:\{0,1\} *"\{0,1\}\([0-9a-f]\{7,40\}\).*/\1/p' "$1" | head -n 1
}

# number FILE KEY: prints the first value of KEY, which is the total of the run.
number() {
    sed -n "s/.*\"$2\": *\([0-9][0-9]*\).*/\1/p" "$1" | head -n 1
}

# subject_of FILE: prints the paths in the first row of COVERS whose pattern matches.
subject_of() {
    while read -r pattern paths; do
        case $pattern in '' | '#'*) continue ;; esac
        # shellcheck disable=SC2254
        case ${1#"$results"/} in $pattern) echo "$paths" && return ;; esac
    done <"$covers"
}

# changed_since FILE: prints how many files of its subject changed after its commit; "?" if git does not know.
changed_since() {
    commit=$(commit_of "$1")
    if [ -z "$history" ] || ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
        echo "?"
    else
        # shellcheck disable=SC2046
        git diff --name-only "$commit" HEAD -- $(subject_of "$1") | wc -l | tr -d ' '
    fi
}

# ---- Files ----

stale=0
for file in $(find $results -name '*.json' | sort); do
    [ -n "$(commit_of "$file")" ] || fail "$file names no commit; make it again with the current tools"
    [ -n "$(subject_of "$file")" ] || fail "$file has no row in $covers; add its subject there"
    changed=$(changed_since "$file")
    case $changed in
    0) ;;
    '?') [ -z "$history" ] || echo "unknown: $file, this checkout does not have its commit $(commit_of "$file")" ;;
    *)
        stale=$((stale + 1))
        [ -z "$list" ] || echo "stale: $file, $changed files of its subject changed after $(commit_of "$file")"
        ;;
    esac
done

# ---- Claims ----

# check_link DOCUMENT FILE LINE
check_link() {
    [ -f "$2" ] || { fail "$1 links $2, which does not exist" && return; }
    [ "$(number "$2" failures)" = 0 ] || fail "$1 links $2, which has failures"
    ran=$(($(number "$2" cases) + $(number "$2" skipped)))
    [ "$ran" = "$cases" ] || [ "${3#*"$ran of $cases cases"}" != "$3" ] ||
        fail "$1 links $2 with $ran cases; the selftest now has $cases: run it again or drop the claim"
    [ "$(grep -c '"op":' "$2")" = "$ops" ] ||
        fail "$1 links $2 with $(grep -c '"op":' "$2") ops; there are now $ops"
    short=$(commit_of "$2" | cut -c 1-7)
    case $3 in
    *"$short"*) ;;
    *)
        [ "$(changed_since "$2")" = 0 ] || [ "$(changed_since "$2")" = "?" ] ||
            fail "$1 links $2 without its commit $short, and its subject changed after it"
        ;;
    esac
}

documents="README.md CONTRIBUTING.md $(echo docs/*.md)"
candidates='bench/results/|[0-9] (core )?ops|[0-9] cases of' # lines that may hold a claim: the loop is slow
for document in $documents; do
    while IFS= read -r line; do
        for file in $(echo "$line" | grep -o 'bench/results/[A-Za-z0-9_./-]*\.json'); do
            case $file in
            */selftest-*) check_link "$document" "$file" "$line" ;;
            *) [ -f "$file" ] || fail "$document links $file, which does not exist" ;;
            esac
        done
        for claim in $(echo "$line" | grep -oE '[0-9]+ cases of [0-9]+ ops' | tr ' ' _); do
            [ "$claim" = "${cases}_cases_of_${ops}_ops" ] ||
                fail "$document states \"$(echo "$claim" | tr _ ' ')\"; the program has $total"
        done
        for claim in $(echo "$line" | grep -oE '(^|[^0-9.])[0-9]+ ops([^a-z]|$)' | grep -oE '[0-9]+'); do
            [ "$claim" = "$ops" ] ||
                fail "$document states \"$claim ops\"; there are $ops"
        done
        for claim in $(echo "$line" | grep -oE '(^|[^0-9.])[0-9]+ core ops([^a-z]|$)' | grep -oE '[0-9]+'); do
            [ "$claim" = "$core" ] || fail "$document states \"$claim core ops\"; there are $core"
        done
    done <<END
$(grep -E "$candidates" "$document")
END
done

[ "$failures" = 0 ] || exit 1
echo "evidence: the selftest claims of README.md and docs are correct ($total)"
[ -n "$list" ] || echo "evidence: $stale files in $results are older than their subject; tools/evidence.sh lists them"
