#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tests/walkthrough.sh GENERATED            cpu: GENERATED is the folder of weft_build.h
#        tests/walkthrough.sh --emulated CMAKE     cuda: builds and runs the emulated device (minutes)
#
# Applies the walk-throughs of docs/architecture.md, "Adding an op", to a copy of the tree, builds it
# without optimization and runs the selftest of the new ops. Fails when a step cannot be applied,
# when a walk-through touches more files than promised, when the copy does not compile, or when a
# selftest fails. Also checks that a row of ops.def, attr.def or weft_quant.def that lacks a column does
# not compile.
#
# A step is a list item that begins with a file in backquotes. Each of its code blocks, indented by 7
# spaces, is inserted before or after the line that the text above it names: "before the line `TEXT`".
# TEXT must begin exactly one line of the file, apart from leading blanks.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree

fail() {
    echo "walkthrough: $*"
    exit 1
}

# usage: extract HEADING. Writes the insertions under "### HEADING" as $scratch/N.file, N.where, N.anchor
# and N.text; prints their number.
extract() {
    rm -f "$scratch"/[0-9]*
    awk -v heading="### $1" -v out="$scratch" '
    function quoted(text) { sub(/^[^`]*`/, "", text); sub(/`.*/, "", text); return text }
    /^#/ { inside = $0 == heading; next }
    !inside { next }
    /^[0-9]+\. `/ { file = quoted($0) }
    match($0, /(before|after) the line `/) {
        where = substr($0, RSTART, RLENGTH); sub(/ .*/, "", where)
        anchor = quoted(substr($0, RSTART))
        pending = 1
        next
    }
    /^       / && (pending || block) {
        if (pending) {
            n++
            print file > (out "/" n ".file")
            print where > (out "/" n ".where")
            print anchor > (out "/" n ".anchor")
            pending = 0; block = 1; blanks = 0
        }
        for (; blanks > 0; blanks--)
            print "" > (out "/" n ".text")
        print substr($0, 8) > (out "/" n ".text")
        next
    }
    /^$/ { blanks++; next }
    { block = 0 }
    END { print n + 0 }' docs/architecture.md
}

# usage: insert N. Applies one insertion to the copy.
insert() {
    file=$tree/$(cat "$scratch/$1.file")
    [ -f "$file" ] || fail "docs/architecture.md names $(cat "$scratch/$1.file"), which does not exist"
    anchor=$(cat "$scratch/$1.anchor") where=$(cat "$scratch/$1.where") \
        awk -v text="$scratch/$1.text" '
    function put(   line) { while ((getline line < text) > 0) print line; close(text) }
    {
        stripped = $0
        sub(/^[ \t]*/, "", stripped)
        hit = index(stripped, ENVIRON["anchor"]) == 1
        hits += hit
        if (hit && ENVIRON["where"] == "before") put()
        print
        if (hit && ENVIRON["where"] == "after") put()
    }
    END { exit hits == 1 ? 0 : 1 }' "$file" >"$scratch/new" ||
        fail "'$(cat "$scratch/$1.anchor")' does not begin exactly one line of $(cat "$scratch/$1.file")"
    cp "$scratch/new" "$file"
}

# usage: apply MOST HEADING. Applies a walk-through, which may touch at most MOST files.
apply() {
    count=$(extract "$2")
    [ "$count" -gt 0 ] || fail "docs/architecture.md has no steps under '$2'"
    i=1
    while [ "$i" -le "$count" ]; do
        insert "$i"
        i=$((i + 1))
    done
    files=$(cat "$scratch"/[0-9]*.file | sort -u | wc -l)
    echo "$2: $files files (at most $1)"
    [ "$files" -le "$1" ] || fail "'$2' touches more than $1 files"
}

# usage: refuses_row TABLE SOURCE ROW. Checks that src/SOURCE does not compile when the row of TABLE that
# begins with ROW lacks its last column, a word or a string.
refuses_row() {
    rm -rf "$scratch/short"
    mkdir -p "$scratch/short/graph"
    cp "$tree/include/weft.h" "$scratch/short" # includes weft_quant.def from its own folder
    short=$scratch/short/${1#*/}
    row="$3," awk '
    {
        stripped = $0
        sub(/^[ \t]*/, "", stripped)
        more = sub(/[ \t]*\\$/, "", stripped) ? " \\" : ""
        if (index(stripped, ENVIRON["row"]) == 1) inside = 1
        if (!inside) { print; next }
        text = text stripped " "
        if (stripped !~ /\)$/) next
        hits += sub(/, *("[^"]*"|[A-Z_]+)\) $/, ")", text)
        print text more
        inside = 0; text = ""
    }
    END { exit hits == 1 ? 0 : 1 }' "$tree/$1" >"$short" || fail "$1 has no single row $3"
    if $compile -I"$scratch/short" $includes -fsyntax-only "$tree/src/$2" 2>"$scratch/why"; then
        fail "a row of $1 without its last column compiles: $3"
    fi
    grep -q 'argument' "$scratch/why" || { cat "$scratch/why"; fail "src/$2 fails for another reason"; }
}

build_cpu() {
    find "$tree/src" -name '*.c' ! -path '*/cpu/simd/*' ! -path '*/cpu/amx/*' ! -path '*/cuda/*' >"$scratch/sources"
    echo "$tree/src/device/cuda/absent.c" >>"$scratch/sources"
    mkdir "$scratch/objects"
    cat >"$scratch/compile" <<EOF
#!/bin/sh
exec $compile $includes -c "\$1" -o "$scratch/objects/\$(echo "\$1" | cksum | tr -d ' ').o"
EOF
    chmod +x "$scratch/compile"
    xargs -P 2 -n 1 "$scratch/compile" <"$scratch/sources"
    ${CC:-cc} "$scratch"/objects/*.o -lpthread -ldl -lm -o "$scratch/weft"
}

mkdir "$tree"
if [ "${1-}" = --emulated ]; then
    cp -R CMakeLists.txt cmake include src tests "$tree"
else
    cp -R include src "$tree"
fi
apply 2 "An elementwise op"
apply 8 "An op with attributes, a gradient and kernels"

if [ "${1-}" = --emulated ]; then
    "$2" -S "$tree" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Debug -DWEFT_TESTS=ON -DWEFT_EXAMPLES=OFF \
        -DWEFT_CUDA=OFF >"$scratch/log"
    "$2" --build "$scratch/build" --target weft_emulated --parallel 2 >"$scratch/log" 2>&1 || {
        tail -n 30 "$scratch/log"
        fail "the emulated cuda device does not build with the walk-throughs applied"
    }
    for op in square softcap; do
        "$scratch/build/tests/weft_emulated" selftest --device cuda --op $op
    done
    exit
fi

compile="${CC:-cc} -std=c11 -O0 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -DWF_CPU_SIMD=0 -DWF_CHECK=1 -DWF_STATIC=0"
includes="-I$tree/include -I$tree/src -I$1"
refuses_row src/graph/ops.def graph/op.c 'WF_UNARY(square'
refuses_row src/graph/ops.def graph/op.c 'WF_BINARY(div'
refuses_row src/graph/ops.def graph/op.c 'WF_OP(softcap'
refuses_row src/graph/attr.def graph/op.c 'WF_ATTR(scale, REAL, factor'
refuses_row src/graph/attr.def graph/op.c 'WF_ATTR(attention, INT, window'
refuses_row include/weft_quant.def graph/type.c 'X(A, Q8_0'
refuses_row include/weft_quant.def graph/type.c 'X(A, Q4_K'
refuses_row include/weft_quant.def graph/type.c 'X(A, Q5_K'
build_cpu
for op in square softcap; do
    "$scratch/weft" selftest --op $op
done
cd "$root"
