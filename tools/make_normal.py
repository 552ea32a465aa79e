#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: build-python/bin/python tools/make_normal.py > src/text/normal_table.h

Writes the tables of the normalizers: lower case, compatibility decompositions, the characters that each
normalizer removes, and grapheme clusters. The package tokenizers mixes several versions of Unicode, one for each
normalizer. So this script asks the package about every character, in the version that the tests compare with
(tools/fetch_python.sh).

Grapheme clusters have no interface of their own. Normalizer Precompiled, with rules that replace any first byte
by X, writes one X for a cluster of less than 6 bytes, and one X for each character of a longer one.
"""
import struct
import sys

import tokenizers
from tokenizers import normalizers

if tokenizers.__version__ != "0.22.1":
    sys.exit("make_normal.py: needs tokenizers 0.22.1, not " + tokenizers.__version__)

points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def every(normalizer):
    return {c: normalizer.normalize_str(chr(c)) for c in points}


def bert(**on):
    return normalizers.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False,
                                                lowercase=False), **on})


def marks():
    """The only rules: each byte c, at unit 256 ^ c, ends a key. All keys share the value in unit 512."""
    units = [0] * 1024
    units[0] = 256 << 10
    units[512] = 1 << 31
    for c in range(1, 256):
        units[256 ^ c] = c | 1 << 8 | (256 ^ c ^ 512) << 10
    return normalizers.Precompiled(struct.pack("<I1024I", 4 * 1024, *units) + b"X\0")


one = marks()


def count(text):
    return len(one.normalize_str(text))


# Numbers as in normal_table's reader, grapheme.c.
CONTROL, EXTEND, ZWJ, SPACING, PREPEND, PICTURE, CONSONANT, LINKER, LEADING, VOWEL, TRAILING, LV, LVT = range(1, 14)


def hangul(c):
    if 0x1100 <= c <= 0x115F or 0xA960 <= c <= 0xA97C:
        return LEADING
    if 0x1160 <= c <= 0x11A7 or 0xD7B0 <= c <= 0xD7C6:
        return VOWEL
    if 0x11A8 <= c <= 0x11FF or 0xD7CB <= c <= 0xD7FB:
        return TRAILING
    return (LVT if (c - 0xAC00) % 28 else LV) if 0xAC00 <= c <= 0xD7A3 else 0


def grapheme(c):
    """Clusters of four-byte characters are longer than 5 bytes, unless the other character is ASCII."""
    s = chr(c)
    if c == 0x200D:
        return ZWJ
    if count("a" + s) == 1:
        if len(s.encode()) == 3 and count("\u0915" + s + "\u0915\u0300") == 4:
            return LINKER
        return SPACING if count("\u00a9" + s + "\u200d\u00a9\u0300") == 4 else EXTEND
    if c == 0 or (c < 0x10000 and count(s + "\u0300") == 2):
        return CONTROL
    if count(s + "a") == 1:
        return PREPEND
    if count("\u00a9\u200d" + s) == 3:
        return PICTURE
    if len(s.encode()) == 3 and count("\u0915\u094d" + s + "\u0300") == 4:
        return CONSONANT
    return hangul(c)


clean, nonspacing = every(bert(clean_text=True)), every(bert(strip_accents=True))
combining, lower = every(normalizers.StripAccents()), every(normalizers.Lowercase())
nfd, nfkd = every(normalizers.NFD()), every(normalizers.NFKD())
compat = {c: nfkd[c] for c in points if nfkd[c] != nfd[c]}


def traits(c):
    if 0xD800 <= c < 0xE000:
        return 0
    value = 1 if clean[c] == "" else 0
    value |= 2 if nonspacing[c] == "" else 0
    value |= 4 if combining[c] == "" else 0
    return value | grapheme(c) << 4


def ranges():
    """Rows first, last, step, difference: of first, first + step, ..., last."""
    rows = []
    for c in points:
        if lower[c] == chr(c) or len(lower[c]) > 1:  # U+0130, in code
            continue
        difference = ord(lower[c]) - c
        last = rows[-1] if rows else [0, -9, 0, 0]
        step = c - last[1]
        if difference == last[3] and step in (1, 2) and (last[0] == last[1] or step == last[2]):
            last[1], last[2] = c, step
        else:
            rows.append([c, c, 1, difference])
    return [v for r in rows for v in r]


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


def paged(name, value):
    pages, first = {}, []
    for page in range(0x1100):
        block = tuple(value(page * 256 + i) for i in range(256))
        first.append(pages.setdefault(block, len(pages)))
    row(name + "_page", "uint8_t", first)
    row(name + "_value", "uint8_t", [v for block in pages for v in block])


print("/* SPDX-License-Identifier: MIT */")
print("/* normal_table.h - made by tools/make_normal.py from tokenizers %s. */" % tokenizers.__version__)
print("/* clang-format off */")
paged("trait", traits)
row("lower", "int32_t", ranges())
keys = sorted(compat)
ends, parts = [0], []
for key in keys:
    parts += [ord(c) for c in compat[key]]
    ends.append(len(parts))
row("compat_char", "uint32_t", keys, "0x%X")
row("compat_end", "uint16_t", ends)
row("compat_part", "uint32_t", parts, "0x%X")
print("/* clang-format on */")
