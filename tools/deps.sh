#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/deps.sh demo|test|fuzz|arm|deb
# Checks that the packages for "make demo", "make test" and so on are installed. Installs missing packages on
# Debian and Ubuntu; on other systems prints their names and fails. Prints nothing if nothing is missing.
set -eu

# Rows: Debian package | a command that succeeds if the tool is installed in another way | purpose.
needs() {
    cat <<'END'
gcc|command -v cc|compiles C
libc6-dev|echo '#include <stdio.h>' | cc -E -|the C library's headers
make|command -v make|runs the Makefile
cmake|command -v cmake|configures the build
ninja-build|command -v ninja|runs the build
libpcre2-dev|test -e /usr/include/pcre2.h|patterns of tokenizers
END
    [ "$1" = test ] && cat <<'END'
libcmocka-dev|pkg-config --exists cmocka|library for unit tests
pkg-config|command -v pkg-config|finds libraries
clang-format|command -v clang-format|checks the format of the source
binutils|command -v nm|nm lists exported symbols
python3-pip|python3 -m pip --version|fetches a PJRT plugin and a model to test with
python3-jinja2|/usr/bin/python3 -c 'import jinja2'|reference for chat templates
END
    [ "$1" = fuzz ] && cat <<'END'
clang|command -v clang|compiles the fuzz targets
libclang-rt-14-dev|echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer,address -x c - -o /dev/null|libFuzzer and the sanitizers
END
    [ "$1" = deb ] && cat <<'END'
dpkg-dev|command -v dpkg-shlibdeps|finds the packages of libraries
lintian|command -v lintian|checks packages
END
    [ "$1" = arm ] && cat <<'END'
gcc-aarch64-linux-gnu|command -v aarch64-linux-gnu-gcc|compiles C for arm64
libc6-dev-arm64-cross|echo '#include <stdio.h>' | aarch64-linux-gnu-gcc -E -|C library for arm64
qemu-user-static|command -v qemu-aarch64-static|runs programs for arm64
END
    return 0
}

installed() {
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

case ${1-} in
demo | test | fuzz | arm | deb) ;;
*) echo "usage: tools/deps.sh demo|test|fuzz|arm|deb" >&2 && exit 2 ;;
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

echo "make $1 needs packages that are missing: $reasons."
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "These are Debian's names; install the same packages with this system's package manager."
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
$sudo apt-get update -q </dev/null || echo "apt-get update failed; using the existing package lists."
# The packages are separate words.
# shellcheck disable=SC2086
if ! $sudo env DEBIAN_FRONTEND=noninteractive $install </dev/null; then
    echo "The packages could not be installed; see the messages of apt-get above."
    exit 1
fi
