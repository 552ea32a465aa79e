#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_layers.sh [DIR]         check the tree in DIR (default: this one)
#        tools/check_layers.sh --selftest    plant violations and check that each is reported
#
# Checks rules that the compiler cannot check:
#   - A layer includes only itself and the layers below it. Only its own folder includes a *_priv.h.
#   - A device's folder includes no other device's folder, except that check, which wraps cpu, includes cpu.
#   - Code shared by all devices includes and names no device, except src/device/device.c, the list of devices.
#     The trainer does not name the cpu either.
#   - Source files start with the licence line.
#   - No file contains a path that exists on one machine only.
# Reads C, CUDA (.cu, .cuh) and .def files. Prints each violation as "file:line: sentence" and then exits 1.
set -eu

# Lists every file that git does not ignore, also untracked files. Without a checkout, lists the files outside the
# build trees.
list_files() {
    if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
        git -c core.quotePath=false ls-files --cached --others --exclude-standard
    else
        find . \( -name .git -o -path './build' -o -path './build-*' \) -prune -o -type f -print |
            sed 's|^\./||'
    fi | sort | while IFS= read -r file; do
        if [ -f "$file" ]; then printf '%s\n' "$file"; fi
    done
}

# Reads file names from stdin and prints violations.
check_sources() {
    awk '
    BEGIN {
        # The layers that each layer may include. Every layer may include weft.h.
        may["include"]  = " "
        may["examples"] = " "
        may["base"]     = " base "
        may["graph"]    = " base graph "
        may["format"]   = " base graph format "
        may["text"]     = " base graph format text "
        may["model"]    = " base graph format text model "
        may["device"]   = " base graph device "
        may["selftest"] = " base graph device selftest "
        may["infer"]    = " base graph format text model device infer "
        may["train"]    = " base graph format text model device infer train "
        may["bench"]    = " base graph format text model device infer train bench "
        may["cli"]      = " base graph format text model device infer train selftest bench cli "
        may["tests"]    = may["cli"]
        backends = "(^|[^a-z])(cuda|opencl|pjrt|cudnn|cublas)"
        trainable = "(^|[^a-z])(cpu|cuda|opencl|pjrt|cudnn|cublas)"
        # A device may include its own folder and the devices that it wraps.
        wraps["check"] = " cpu "
    }

    function complain(sentence) {
        printf "%s:%d: %s\n", file, line, sentence
    }

    # Returns whether src/device/OTHER/... is the folder of a device that this file may not include.
    function is_foreign_device(name,    path) {
        if (layer != "device" || split(name, path, "/") < 3 || path[1] != "device")
            return 0
        if (depth == 3)
            return file != "src/device/device.c"
        return path[2] != parts[3] && !index(wraps[parts[3]], " " path[2] " ")
    }

    function check_include(text,    name, from, angled) {
        angled = text ~ /^[ \t]*#[ \t]*include[ \t]*</
        name = text
        sub(/^[^"<]*["<]/, "", name)
        sub(/[">].*/, "", name)
        from = name
        sub(/\/.*/, "", from)
        if (name == "weft.h" || name == "weft_quant.def")
            return
        if (angled && !(index(name, "/") && from in may))
            return  # a system header
        if (layer == "include" || layer == "examples")
            complain("only weft.h, weft_quant.def and system headers may be included here, not \"" name "\"")
        else if (name == "weft_build.h") {
            if (layer != "cli" && layer != "selftest")
                complain("only cli and selftest may include weft_build.h, because it changes with every commit")
        } else if (!index(name, "/"))
            return  # a header in the folder of the file
        else if (!(from in may) || index(name, ".."))
            complain("write includes from src/, as in \"graph/graph.h\", not \"" name "\"")
        else if (!index(may[layer], " " from " "))
            complain(layer " may not include \"" name "\": " from " is a layer above it")
        else if (is_foreign_device(name))
            complain((depth == 3 ? "code shared by all devices" : "device " parts[3]) " may not include \"" name "\" of " (depth == 3 ? "one" : "another") " device; shared code belongs in src/device")
        else if (name ~ /_priv\.h$/) {
            sub(/\/[^\/]*$/, "", name)
            if ("src/" name != folder)
                complain("a _priv.h header may only be included from its own folder, src/" name)
        }
    }

    function check_licence(    first, second, want) {
        if (file ~ /\.([ch]|cu|cuh|def)(\.in)?$/)
            want = "/* SPDX-License-Identifier: MIT */"
        else if (file ~ /(\.sh|\.cmake|\.cmake\.in|CMakeLists\.txt|Makefile|^\.ci\/run)$/)
            want = "# SPDX-License-Identifier: MIT"
        else
            return
        getline first < file
        getline second < file
        close(file)
        line = 1
        if (first != want && !(first ~ /^#!/ && second == want))
            complain("the file must start with the line: " want)
    }

    {
        file = $0
        check_licence()
        if (file !~ /^(src|include|examples|tests)\/.*\.(c|h|def|cu|cuh)$/)
            next
        folder = file
        sub(/\/[^\/]*$/, "", folder)
        depth = split(file, parts, "/")
        layer = parts[1] == "src" ? parts[2] : parts[1]
        shared = layer == "base" || layer == "graph" || layer == "train" || \
                 (layer == "device" && depth == 3 && file !~ /\.def$|\/device\.c$/)
        line = 1
        if (!(layer in may)) {
            complain("unknown layer " layer "; add it and the layers it may include to tools/check_layers.sh")
            next
        }
        for (line = 1; (getline text < file) > 0; line++) {
            if (text ~ /^[ \t]*#[ \t]*include[ \t]*["<]/)
                check_include(text)
            if (shared && match(tolower(text), layer == "train" ? trainable : backends)) {
                name = substr(tolower(text), RSTART, RLENGTH)
                sub(/^[^a-z]/, "", name)
                complain("code shared by all devices may not name a device (" name ")")
            }
        }
        close(file)
    }'
}

# Reads file names from stdin and prints violations.
check_machine_paths() {
    tr '\n' '\0' | xargs -0 grep -nIE '/(work|root|home)/' /dev/null |
        sed -E 's|^([^:]*:[0-9]+:).*|\1 a path that exists on one machine only|'
}

# usage: plant FILE TEXT. Makes a tree with only this file; TEXT is its second line.
plant() {
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree/$(dirname "$1")"
    printf '/* SPDX-License-Identifier: MIT */\n%s\n' "$2" >"$scratch/tree/$1"
}

# usage: refuses FILE TEXT. Fails unless the check reports line 2 of FILE.
refuses() {
    plant "$1" "$2"
    if sh "$script" "$scratch/tree" >"$scratch/out" || ! grep -q "^$1:2: " "$scratch/out"; then
        echo "check_layers.sh did not report a violation in $1: $2"
        exit 1
    fi
}

# usage: accepts FILE TEXT. Fails if the check reports FILE.
accepts() {
    plant "$1" "$2"
    if ! sh "$script" "$scratch/tree" >"$scratch/out"; then
        echo "check_layers.sh reported a legal line in $1: $2"
        cat "$scratch/out"
        exit 1
    fi
}

selftest() {
    script=$(pwd)/tools/check_layers.sh
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT

    accepts src/graph/a.c '#include "base/ctx.h"'
    accepts src/device/cpu/a.c '#include "device/cpu/cpu_priv.h"'
    accepts src/device/cuda/a.c 'int cuda;'
    accepts src/device/device.c 'extern const wf_device_ops wf_opencl_device_ops;'
    accepts src/cli/a.c '#include "weft_build.h"'
    accepts src/base/a.c '#include <sys/mman.h>'
    accepts examples/a.c '#include "weft.h"'
    accepts include/weft.h '#include "weft_quant.def"'
    accepts tests/test_a.c '#include "graph/graph.h"'
    refuses src/base/a.c '#include "graph/graph.h"'
    refuses src/graph/pass/a.c '#  include <device/device.h>'
    refuses src/device/a.h '#include "selftest/selftest.h"'
    refuses src/model/a.c '#include "device/device.h"'
    refuses src/selftest/a.c '#include "cli/cli.h"'
    refuses src/graph/a.c '#include "pass/fold.h"'
    refuses src/graph/a.c '#include "../base/ctx.h"'
    refuses src/graph/a.c '#include "weft_build.h"'
    refuses src/device/a.c '#include "device/cpu/cpu_priv.h"'
    refuses tests/test_a.c '#include "graph/graph_priv.h"'
    refuses examples/a.c '#include "base/ctx.h"'
    refuses include/weft.h '#include "base/ctx.h"'
    refuses src/graph/a.c '/* as CUDA does */'
    refuses src/device/a.c 'int wf_opencl_open(void);'
    refuses src/train/a.c '/* on the CPU */'
    # CUDA sources obey the same rules.
    accepts src/device/cuda/a.cu '#include "device/walk.h"'
    accepts src/device/cuda/a.cuh '#include "device/cuda/kernels.cuh"'
    refuses src/device/cuda/a.cu '#include "train/data.h"'
    refuses src/device/cuda/a.cuh '#include "model/model.h"'
    refuses src/device/cuda/a.cuh '#include "../kernel.h"'
    refuses src/device/a.cuh 'int wf_cuda_open(void);'
    # A device includes no other device; check wraps cpu.
    accepts src/device/check/a.c '#include "device/cpu/cpu.h"'
    accepts src/device/cpu/simd/a.c '#include "device/cpu/row.h"'
    accepts src/device/device.c '#include "device/cpu/cpu.h"'
    refuses src/device/a.c '#include "device/cpu/cpu.h"'
    refuses src/device/a.h '#include "device/check/check.h"'
    refuses src/device/cuda/a.cuh '#include "device/cpu/row.h"'
    refuses src/device/cuda/a.cu '#include "device/pjrt/pjrt.h"'
    refuses src/device/pjrt/a.c '#include "device/cpu/cpu.h"'
    refuses src/device/cpu/simd/a.c '#include "device/cuda/cuda.h"'
    refuses src/device/check/a.c '#include "device/cuda/cuda.h"'
    refuses src/model/a.c '#include "train/data.h"'
    refuses docs/a.md "see $(printf '/%s/me/notes' home)"

    for file in src/base/a.c src/device/cuda/a.cu src/graph/a.def; do
        plant $file 'int x;'
        sed -i 1d "$scratch/tree/$file"
        if sh "$script" "$scratch/tree" >/dev/null; then
            echo "check_layers.sh did not report a missing licence line in $file"
            exit 1
        fi
    done
}

root=$(dirname "$0")/..
case ${1-} in
--selftest) cd "$root" && selftest && exit ;;
"") cd "$root" ;;
*) cd "$1" ;;
esac

violations=$({ list_files | check_sources; list_files | check_machine_paths; } | sort -t: -k1,1 -k2,2n)
if [ -n "$violations" ]; then
    printf '%s\n' "$violations"
    exit 1
fi
