#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/deps.sh demo|test|fuzz|arm
# Makes sure that what "make demo", "make test" and so on need is here. On Debian and its relatives it
# installs what is missing; elsewhere it says what to install. Silent when nothing is missing.
set -eu

# Debian's package, how to tell that the thing is here although the package is not, what it is for.
needs() {
    cat <<'END'
gcc|command -v cc|compiles C
libc6-dev|echo '#include <stdio.h>' | cc -E -|the C library's headers
make|command -v make|runs the Makefile
cmake|command -v cmake|configures the build
ninja-build|command -v ninja|runs the build
libpcre2-dev|test -e /usr/include/pcre2.h|splits text for tokenizers that have patterns of their own
END
    [ "$1" = test ] && cat <<'END'
libcmocka-dev|pkg-config --exists cmocka|the unit tests are written with it
pkg-config|command -v pkg-config|finds libraries
clang-format|command -v clang-format|checks the format of the source
binutils|command -v nm|nm lists exported symbols
python3-pip|python3 -m pip --version|fetches a PJRT plugin and a model to test with
python3-jinja2|/usr/bin/python3 -c 'import jinja2'|what chat templates are compared with
END
    [ "$1" = fuzz ] && cat <<'END'
clang|command -v clang|compiles the fuzz targets
libclang-rt-14-dev|echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer,address -x c - -o /dev/null|libFuzzer and the sanitizers
END
    [ "$1" = arm ] && cat <<'END'
gcc-aarch64-linux-gnu|command -v aarch64-linux-gnu-gcc|compiles C for arm64
libc6-dev-arm64-cross|echo '#include <stdio.h>' | aarch64-linux-gnu-gcc -E -|its C library
qemu-user-static|command -v qemu-aarch64-static|runs programs for arm64
END
    return 0
}

installed() {
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

case ${1-} in
demo | test | fuzz | arm) ;;
*) echo "usage: tools/deps.sh demo|test|fuzz|arm" >&2 && exit 2 ;;
esac

missing=
reasons=
while IFS= read -r row; do
    package=${row%%|*}
    reason=${row##*|}
    probe=${row#*|}
    probe=${probe%|*}
    if ! installed "$package" && ! sh -c "$probe" </dev/null >/dev/null 2>&1; then
        missing="$missing $package"
        reasons="$reasons${reasons:+, }$package ($reason)"
    fi
done <<END
$(needs "$1")
END
[ -n "$missing" ] || exit 0

echo "make $1 needs what is not installed here: $reasons."
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "The names are Debian's. Please install the same with this system's package manager."
    exit 1
fi

install="apt-get install -y --no-install-recommends$missing"
sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Please run as root: apt-get update && $install"
        exit 1
    fi
    sudo=sudo
    echo "You are not root, so sudo runs apt-get and may ask for your password."
fi
echo "Running: ${sudo:+sudo }$install"
$sudo apt-get update -q </dev/null || echo "apt-get update failed; trying with the lists that are here."
# The packages are separate words.
# shellcheck disable=SC2086
if ! $sudo env DEBIAN_FRONTEND=noninteractive $install </dev/null; then
    echo "The packages could not be installed; apt-get says why above."
    exit 1
fi
