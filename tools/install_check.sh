#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/install_check.sh BUILD_DIR VERSION GENERATOR
# Installs a built tree into a temporary prefix and builds a small program against it in three ways: with
# pkg-config and the shared library, with pkg-config and the static library, and with CMake's find_package.
# Each program must print VERSION.
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

# Checks the man pages of the program and of every command, and the three completions.
share=$dir/installed/share
pages="weft $("$dir/installed/bin/weft" help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/weft-\1/p')"
for page in $pages; do
    test -s "$share/man/man1/$page.1" || { echo "$page.1 is not installed" && exit 1; }
done
for file in bash-completion/completions/weft zsh/site-functions/_weft \
    fish/vendor_completions.d/weft.fish; do
    test -s "$share/$file" || { echo "$file is not installed" && exit 1; }
done

# Move the tree: an installed tree must be relocatable.
prefix=$dir/prefix
mv "$dir/installed" "$prefix"

cat >"$dir/consumer/main.c" <<'END'
#include <stdio.h>
#include <weft.h>

/* Calls wf_model_open, so that a static link needs all dependencies of the library. */
int main(int argc, char **argv) {
    wf_ctx *ctx;
    wf_model *model;
    puts(wf_version_string());
    return argc > 1 && wf_ctx_new(&ctx) == WF_OK && wf_model_open(ctx, argv[1], &model) != WF_OK;
}
END
cat >"$dir/consumer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.21)
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
    *"$version"*) echo "$how: the installed library works; version $printed" ;;
    *) echo "$how: expected version $version, but the library returned \"$printed\"" && exit 1 ;;
    esac
}

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weft.pc)")
export PKG_CONFIG_PATH
# pkg-config quotes its output for the shell.
eval "set -- $(pkg-config --cflags --libs weft)"
"$cc" -o "$dir/by_pkg_config" "$dir/consumer/main.c" "$@"
expect_version "pkg-config" env LD_LIBRARY_PATH="$PKG_CONFIG_PATH/.." "$dir/by_pkg_config"

eval "set -- $(pkg-config --static --cflags --libs weft | sed 's/-lweft /-l:libweft.a /')"
"$cc" -o "$dir/by_pkg_config_static" "$dir/consumer/main.c" "$@"
expect_version "pkg-config --static" "$dir/by_pkg_config_static"

"$cmake" -S "$dir/consumer" -B "$dir/by_cmake" -G "$generator" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
"$cmake" --build "$dir/by_cmake" >/dev/null
expect_version "find_package" "$dir/by_cmake/consumer"
