#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/install_check.sh BUILD_DIR VERSION GENERATOR
# Installs a built tree into a temporary prefix and uses it as a stranger would: one small program,
# built once through pkg-config and once through CMake's find_package, must print VERSION.
set -eu
build=$1
version=$2
generator=$3
cc=${CC:-cc}
cmake=${CMAKE:-cmake}

dir=$build/install_check
rm -rf "$dir"
mkdir -p "$dir/consumer"
"$cmake" --install "$build" --prefix "$dir/installed" >/dev/null
test -x "$dir/installed/bin/weft"

# A moved tree must work too, and this one has just been moved.
prefix=$dir/prefix
mv "$dir/installed" "$prefix"

cat >"$dir/consumer/main.c" <<'END'
#include <stdio.h>
#include <weft.h>

int main(void) {
    puts(wf_version_string());
    return 0;
}
END
cat >"$dir/consumer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.20)
project(consumer C)
find_package(weft $version REQUIRED)
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE weft::weft)
END

# usage: expect_version HOW COMMAND...
expect_version() {
    how=$1
    shift
    printed=$("$@")
    case $printed in
    *"$version"*) echo "$how: the installed library works and says $printed" ;;
    *) echo "$how: expected version $version, the library says \"$printed\"" && exit 1 ;;
    esac
}

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weft.pc)")
export PKG_CONFIG_PATH
# pkg-config quotes its answer for the shell.
eval "set -- $(pkg-config --cflags --libs weft)"
"$cc" -o "$dir/by_pkg_config" "$dir/consumer/main.c" "$@"
expect_version "pkg-config" env LD_LIBRARY_PATH="$PKG_CONFIG_PATH/.." "$dir/by_pkg_config"

"$cmake" -S "$dir/consumer" -B "$dir/by_cmake" -G "$generator" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
"$cmake" --build "$dir/by_cmake" >/dev/null
expect_version "find_package" "$dir/by_cmake/consumer"
