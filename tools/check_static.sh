#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tools/check_static.sh PROGRAM
# Runs the static PROGRAM in a root folder that contains only the program and a tiny model. Needs unprivileged
# user namespaces (unshare) or root.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 1 ] || { echo "usage: tools/check_static.sh PROGRAM" >&2 && exit 2; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/tmp" "$root/model"
cp "$1" "$root/weft"
cp tests/fixtures/models/qwen2/* "$root/model/"

enter="unshare -r chroot $root"
$enter /weft version >/dev/null 2>&1 || enter="chroot $root"
$enter /weft version
$enter /weft run /model -p "the" -n 8 -q
$enter /weft selftest --device cpu --sample 200
for device in cuda pjrt:/plugin.so; do
    message=$($enter /weft selftest --device "$device" --op add 2>&1) && { echo "check_static: $device opened" && exit 1; }
    case $message in
    *"static build"*) ;;
    *) echo "check_static: $device fails with another message: $message" && exit 1 ;;
    esac
done
echo "check_static: runs in an empty root folder ($(du -k "$1" | cut -f1) KiB)"
