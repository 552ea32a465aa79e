#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the tables of src/cli/width.c from Python's Unicode database."""
import unicodedata


def columns(code):
    """Returns 0, 1 or 2; None if the code point is not assigned, so that any range may include it."""
    if 0x20000 <= code <= 0x3FFFD:
        return 2
    category = unicodedata.category(chr(code))
    if category == "Cn":
        return None
    if code != 0xAD and category in ("Mn", "Me", "Cf") or 0x1160 <= code <= 0x11FF:
        return 0
    return 2 if unicodedata.east_asian_width(chr(code)) in "WF" else 1


ranges, last = {0: [], 2: []}, None
for code in range(0x80, 0x110000):
    now = columns(code)
    if now is None:
        continue
    if now == last and now != 1:
        ranges[now][-1][1] = code
    elif now != 1:
        ranges[now].append([code, code])
    last = now

print(f"/* Unicode {unicodedata.unidata_version} */")
for name, now in (("zero", 0), ("wide", 2)):
    items = [f"{{0x{a:x}, 0x{b:x}}}" for a, b in ranges[now]]
    print(f"static const range {name}[] = {{\n    " + ", ".join(items) + ",\n};")
