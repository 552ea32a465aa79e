#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/deb.sh BUILD OUT
# Makes Debian packages in the folder OUT from the built tree BUILD: weft (the program), libweft0 (the
# shared library) and libweft-dev (header, static library, pkg-config and CMake files). Installs the tree
# once and splits it by path, so every installed file is in exactly one package. Fails on any error or
# warning of lintian.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 2 ] || { echo "usage: tools/deb.sh BUILD OUT" >&2 && exit 2; }
build=$1
out=$2
sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$build/CMakeCache.txt" | grep -qx /usr ||
    { echo "deb.sh: the prefix of '$build' is not /usr; configure it with -DCMAKE_INSTALL_PREFIX=/usr" >&2 && exit 1; }

version=$(sed -n 's/^project(weft VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
arch=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-The Weft authors} <${DEBEMAIL:-weft@packages.example.org}>"
# All dates are the commit's, so the same commit makes the same files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}
export SOURCE_DATE_EPOCH
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")

rm -rf "$out"
mkdir -p "$out/debian"
out=$(cd "$out" && pwd)
DESTDIR="$out/all" cmake --install "$build" --strip >/dev/null
# --strip ignores archives. Remove debug information from static libraries and keep their symbols.
find "$out/all" -name '*.a' -exec strip --strip-debug --enable-deterministic-archives {} +

find "$out/all/usr/share/man" -type f -exec gzip -9n {} +

# split PACKAGE PATTERN...: moves the installed files whose path matches a pattern into the package's tree.
split() {
    package=$1
    shift
    for pattern in "$@"; do
        (cd "$out/all" && find usr -path "$pattern" ! -type d) | while IFS= read -r file; do
            mkdir -p "$out/$package/$(dirname "$file")"
            mv "$out/all/$file" "$out/$package/$file"
        done
    done
}
split libweft0 'usr/lib/*/libweft.so.*'
split libweft-dev 'usr/include/*' 'usr/lib/*'
split weft 'usr/*'

# description PACKAGE: prints the short and the long description in the format of a control file.
description() {
    case $1 in
    weft) cat <<'TEXT'
train, finetune, quantize and run language models
 Weft is a transformer engine. The program weft trains language models from
 text, finetunes them, quantizes them and generates text with them. It reads
 and writes GGUF and safetensors files.
TEXT
        ;;
    libweft0) cat <<'TEXT'
transformer engine (shared library)
 libweft trains and runs transformer language models. Programs in C use it
 through one header, weft.h.
 .
 This package contains the shared library.
TEXT
        ;;
    libweft-dev) cat <<'TEXT'
transformer engine (development files)
 libweft trains and runs transformer language models. Programs in C use it
 through one header, weft.h.
 .
 This package contains the header, the static library, and the files for
 pkg-config and CMake.
TEXT
        ;;
    esac
}

# needs PACKAGE: prints the value of the Depends line: packages of the libraries that its files load.
needs() {
    case $1 in
    libweft-dev) echo "libweft0 (= $version), libpcre2-dev" ;;
    *)
        files=$(find "$out/$1/usr/bin" "$out/$1/usr/lib" -type f \( -perm -u+x -o -name '*.so.*' \) 2>/dev/null || true)
        # shellcheck disable=SC2086 # paths of our own, without blanks
        (cd "$out" && dpkg-shlibdeps --ignore-missing-info -O $files >"$out/depends" 2>"$out/log") ||
            { cat "$out/log" >&2 && echo "deb.sh: dpkg-shlibdeps failed for the package $1" >&2 && exit 1; }
        sed -n 's/^shlibs:Depends=//p' "$out/depends"
        ;;
    esac
}

# dpkg-shlibdeps needs the control file of a source package with these fields.
printf 'Source: weft\nMaintainer: %s\n\nPackage: weft\nArchitecture: any\n' "$maintainer" >"$out/debian/control"

for package in libweft0 libweft-dev weft; do
    tree=$out/$package
    docs=$tree/usr/share/doc/$package
    mkdir -p "$tree/DEBIAN" "$docs"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
        printf 'Upstream-Name: weft\n\nFiles: *\nCopyright: %s\nLicense: Expat\n' \
            "$(sed -n 's/^Copyright (c) //p' LICENSE)"
        sed -e '1,/^Copyright/d' -e '/./!s/^/./' -e 's/^/ /' LICENSE | sed 1d
    } >"$docs/copyright"
    printf 'weft (%s) unstable; urgency=medium\n\n  * Package of version %s; git log lists the changes.\n\n -- %s  %s\n' \
        "$version" "$version" "$maintainer" "$date" | gzip -9n >"$docs/changelog.gz"
    case $package in
    libweft*) section=libs multi=same ;;
    *) section=science multi=foreign ;;
    esac
    [ "$package" != libweft-dev ] || section=libdevel
    if [ "$package" = libweft0 ]; then
        echo "libweft 0 libweft0 (>= $version)" >"$tree/DEBIAN/shlibs"
        echo "activate-noawait ldconfig" >"$tree/DEBIAN/triggers"
    fi
    depends=$(needs "$package") # an assignment, so that its failure ends the script
    {
        printf 'Package: %s\nSource: weft\nVersion: %s\nArchitecture: %s\n' "$package" "$version" "$arch"
        printf 'Maintainer: %s\nSection: %s\nPriority: optional\nMulti-Arch: %s\n' "$maintainer" "$section" "$multi"
        printf 'Installed-Size: %s\nDepends: %s\n' "$(du -k -s "$tree/usr" | cut -f1)" "$depends"
        printf 'Description: '
        description "$package"
    } >"$tree/DEBIAN/control"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree" -type f -exec chmod u=rwX,go=rX {} +
    find "$tree/usr/lib" -type f -name '*.so.*' -exec chmod 644 {} + 2>/dev/null || true
    # Use xz: dpkg of some distributions cannot read zstd.
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/${package}_${version}_$arch.deb" >/dev/null
done
rm -rf "$out/all" "$out/debian" "$out/depends" "$out/log"

lintian --fail-on error,warning --tag-display-limit 0 "$out"/*.deb
du -h "$out"/*.deb
