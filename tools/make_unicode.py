#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools/make_unicode.py > src/text/unicode_table.h && tools/format.sh

Writes the Unicode tables of the tokenizers. Categories are from Unicode 16, as in the package tokenizers
(0.22). Needs unicodedata2 16.0.0:
    pip install unicodedata2==16.0.0
Normalization in tokenizers is from an older version and leaves characters assigned later unchanged. NEWER
lists the characters that Unicode 16 normalizes differently, found by comparing NFC of every character.
"""
import sys
import unicodedata2 as ucd

if ucd.unidata_version != "16.0.0":
    sys.exit("make_unicode.py: needs unicodedata2 16.0.0 (pip install unicodedata2==16.0.0), not " + ucd.unidata_version)

NEWER = [
    (0x07FD, 0x07FD), (0x0897, 0x089F), (0x08CA, 0x08D3), (0x09FE, 0x09FE), (0x0C3C, 0x0C3C),
    (0x0D3B, 0x0D3C), (0x0EBA, 0x0EBA), (0x1715, 0x1715), (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA),
    (0xA82C, 0xA82C), (0x105C9, 0x105C9), (0x105E4, 0x105E4), (0x10D24, 0x10D27),
    (0x10D69, 0x10D6D), (0x10EAB, 0x10EAC), (0x10EFD, 0x10EFF), (0x10F46, 0x10F50),
    (0x10F82, 0x10F85), (0x11070, 0x11070), (0x1133B, 0x1133B), (0x11383, 0x11383),
    (0x11385, 0x11385), (0x1138E, 0x1138E), (0x11391, 0x11391), (0x113C5, 0x113C5),
    (0x113C7, 0x113C8), (0x113CE, 0x113D0), (0x1145E, 0x1145E), (0x11839, 0x1183A),
    (0x11938, 0x11938), (0x1193D, 0x1193E), (0x11943, 0x11943), (0x119E0, 0x119E0),
    (0x11A34, 0x11A34), (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D42),
    (0x11D44, 0x11D45), (0x11D97, 0x11D97), (0x11F41, 0x11F42), (0x16121, 0x16128),
    (0x1612F, 0x1612F), (0x16D68, 0x16D6A), (0x16FF0, 0x16FF1), (0x1E08F, 0x1E08F),
    (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF),
    (0x1E5EE, 0x1E5EF)]
newer = {c for low, high in NEWER for c in range(low, high + 1)}
# The characters with the property White_Space.
space = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
         0x205F, 0x3000}
# \w besides letters, marks, digits and connectors: Join_Control, and symbols with the property Alphabetic. With
# them, \w has the characters of the package tokenizers, compared for every character.
word = {0x200C, 0x200D, *range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
        *range(0x1F170, 0x1F18A)}
points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

order = {c: ucd.combining(chr(c)) for c in points if c not in newer and ucd.combining(chr(c))}
parts = {}
for c in points:
    text = ucd.decomposition(chr(c))
    if text and "<" not in text and c not in newer:
        halves = [int(h, 16) for h in text.split()]
        parts[c] = (halves[0], halves[1] if len(halves) == 2 else 0)
# Composition exclusions: NFC decomposes these characters and does not compose them again.
pairs = {p: c for c, p in parts.items() if p[1] and ucd.normalize("NFC", chr(c)) == chr(c)}
unstable = set(order) | {b for _, b in pairs} | {c for c in parts if c not in pairs.values()}
unstable |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))


def bits(c):
    if 0xD800 <= c < 0xE000:
        return 0
    category = ucd.category(chr(c))
    value = {"L": 1, "N": 2, "P": 8, "S": 16, "M": 32}.get(category[0], 0)
    value |= 4 if c in space else 0
    value |= 64 if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or c in word else 0
    return value | (128 if c in unstable else 0)


def row(name, kind, values, form="%d"):
    print("static const %s %s[%d] = {" % (kind, name, len(values)))
    line = "    "
    for value in values:
        item = form % value + ","
        if len(line) + len(item) > 98:
            print(line)
            line = "    "
        line += item
    print(line + "\n};\n")


def paged(name, value, kind):
    pages, first = {}, []
    for page in range(0x1100):
        block = tuple(value(page * 256 + i) for i in range(256))
        first.append(pages.setdefault(block, len(pages)))
    row(name + "_page", "uint8_t", first)
    row(name + "_value", kind, [v for block in pages for v in block])


print("/* SPDX-License-Identifier: MIT */")
print("/* unicode_table.h - made by tools/make_unicode.py from Unicode %s. */" % ucd.unidata_version)
print("/* clang-format off */")
paged("class", bits, "uint8_t")
paged("order", lambda c: order.get(c, 0), "uint8_t")
row("part", "uint32_t", [v for c in sorted(parts) for v in (c, *parts[c])], "0x%X")
row("pair", "uint32_t", [v for p in sorted(pairs) for v in (*p, pairs[p])], "0x%X")
print("/* clang-format on */")
