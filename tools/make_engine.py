#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_engine.py [OUT.svg]: draws docs/pictures/engine.svg, one step of the inference engine."""
import sys

OUT = "docs/pictures/engine.svg"
WIDTH, HEIGHT = 860, 372
INK, LINE, SOFT = "#223344", "#4a6fa5", "#5b6b7c"
COLOURS = {"A": "#bcd4f0", "B": "#f6d2a2", "C": "#c9e4bb", "D": "#e3c8ea", "-": "#ffffff", "+": "#e9edf2"}

parts = []


def box(x, y, w, h, fill, stroke=LINE, radius=6):
    parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="{radius}" fill="{fill}" stroke="{stroke}"/>')


def text(x, y, words, size=12, anchor="middle", colour=INK, bold=False):
    weight = ' font-weight="bold"' if bold else ""
    parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>{words}</text>')


def arrow(x1, y1, x2, y2):
    parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" stroke-width="1.5" marker-end="url(#tip)"/>')


def cells(x, y, names, size=20):
    """A row of squares; a name is the sequence that a square belongs to."""
    for i, name in enumerate(names):
        box(x + i * size, y, size, size, COLOURS[name], SOFT, 2)
        if name in "ABCD":
            text(x + i * size + size / 2, y + size * 0.72, name, 11)


parts.append(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica,Arial,sans-serif">')
parts.append('<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
             f'<path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>')
parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>')

box(16, 40, 168, 132, "#f3f6fb")
text(100, 30, "waiting", 14, bold=True)
for row, (name, words) in enumerate((("D", "priority 1"), ("+", "key 7"), ("+", "key 9"), ("+", "key 7"))):
    box(28, 52 + 28 * row, 144, 22, COLOURS[name], SOFT, 3)
    text(100, 67 + 28 * row, f"D: {words}" if name == "D" else words, 11)

box(236, 40, 368, 132, "#f3f6fb")
text(420, 30, "one step: a run of the model", 14, bold=True)
text(250, 68, "decode: a token of each sequence", 12, "start")
cells(250, 76, "AB")
text(250, 122, "prompts fill the rest, within step_ms", 12, "start")
cells(250, 130, "CCCCCCCCCCD")
cells(470, 130, "---")
text(500, 122, "padding", 11, "middle", SOFT)

box(656, 40, 188, 132, "#f3f6fb")
text(750, 30, "sampling and events", 14, bold=True)
for row, words in enumerate(("A: token, text", "B: token, end", "C: its first token", "D: reads its prompt")):
    text(672, 68 + 26 * row, words, 12, "start")

arrow(184, 106, 234, 106)
arrow(604, 106, 654, 106)

box(16, 222, 828, 132, "#f8f8f8")
text(28, 212, "pool of pages, 16 tokens each", 14, "start", bold=True)
cells(28, 240, "AAABCCCCCCDD++++++--", 40)
text(28, 302, "A, B, C and D hold their pages; C and D share the pages of their common prefix", 12, "start")
text(28, 320, "grey: pages of ended sequences. A prompt with the same prefix takes them; otherwise the oldest is evicted", 12, "start")
text(28, 338, "white: free. If nothing is free or grey, the youngest sequence gives its pages back and waits again", 12, "start")
arrow(420, 172, 420, 220)

with open(sys.argv[1] if len(sys.argv) > 1 else OUT, "w") as f:
    f.write("\n".join(parts) + "\n</svg>\n")
