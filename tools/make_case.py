#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints src/text/jinja/case.def: upper, lower and title case of letters, from Python's Unicode tables."""
import unicodedata

HEADER = """/* SPDX-License-Identifier: MIT */
/*
 * case.def - letters in upper, lower and title case, of Unicode %s. Printed by tools/make_case.py.
 *
 * WF_CASE_UPPER and WF_CASE_LOWER (first, last, step, delta): the characters first, first + step, ... last
 * map to character + delta. WF_CASE_LONG_* (code, three characters, 0: none): all other mappings.
 */""" % unicodedata.unidata_version


def mapping(change):
    """Returns {code: codes} of the characters that `change` changes."""
    chars = (chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    return {ord(c): [ord(m) for m in change(c)] for c in chars if change(c) != c}


def ranges(changed):
    """Yields (first, last, step, delta) of the characters that map to one character."""
    single = [(c, m[0] - c) for c, m in changed.items() if len(m) == 1]
    i = 0
    while i < len(single):
        ends = []
        for step in (1, 2):
            j = i
            while j + 1 < len(single) and single[j + 1] == (single[j][0] + step, single[i][1]):
                j += 1
            ends.append((j, -step))
        j, step = max(ends)
        yield single[i][0], single[j][0], -step, single[i][1]
        i = j + 1


def print_long(name, rows):
    for code, m in rows:
        print("%s(0x%X, 0x%X, 0x%X, 0x%X)" % (name, code, *(m + [0, 0])[:3]))


upper, lower, title = mapping(str.upper), mapping(str.lower), mapping(str.title)
print(HEADER)
for name, changed in ("WF_CASE_UPPER", upper), ("WF_CASE_LOWER", lower):
    for row in ranges(changed):
        print("%s(0x%X, 0x%X, %d, %d)" % (name, *row))
print_long("WF_CASE_LONG_UPPER", [(c, m) for c, m in upper.items() if len(m) > 1])
print_long("WF_CASE_LONG_LOWER", [(c, m) for c, m in lower.items() if len(m) > 1])
both = sorted(set(upper) | set(title))
print_long("WF_CASE_LONG_TITLE", [(c, title.get(c, [c])) for c in both if title.get(c) != upper.get(c)])
