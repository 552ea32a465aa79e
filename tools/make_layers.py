#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_layers.py [OUT.svg]: draws docs/pictures/layers.svg, the layers of src/.

Fails if a text is wider than its box, by approximate widths of Helvetica."""
import sys

OUT = "docs/pictures/layers.svg"
WIDTH, GAP, HEIGHT, PAD = 860, 10, 56, 20
TITLE, TEXT = 15, 12
TOP, OPEN, DEVICE, CORE, BASE = "#e9e2f5", "#e2f0d9", "#fde8c8", "#eef3fb", "#f3f3f3"

# (x, row, width, rows, colour, title, text): x and width are in columns, 12 in total; row 0 is the top row.
BOXES = (
    (0, 0, 12, 1, TOP, "src/cli", "one file per command: run, chat, train, finetune, prepare, plan, selftest, bench, ..."),
    (0, 1, 3, 1, TOP, "src/train", "data, trainer, checkpoints"),
    (3, 1, 2.5, 1, TOP, "src/infer", "the engine, samplers"),
    (5.5, 1, 2.1, 1, TOP, "src/selftest", "float64 reference"),
    (7.6, 1, 1.6, 1, TOP, "src/bench", "timing"),
    (9.2, 1, 2.8, 1, OPEN, "examples", "and your program"),
    (0, 2, 2.8, 1, CORE, "src/model", "families, conversion"),
    (2.8, 2, 6.4, 1, DEVICE, "src/device", "sessions, plans, memory, the shared executor"),
    (9.2, 2, 2.8, 2, OPEN, "include/weft.h", "the public API"),
    (0, 3, 2.8, 1, CORE, "src/text", "tokenizers, templates"),
    (2.8, 3, 1.6, 1, DEVICE, "cpu", "CPU kernels"),
    (4.4, 3, 1.6, 1, DEVICE, "cuda", "NVIDIA GPUs"),
    (6.0, 3, 1.6, 1, DEVICE, "pjrt", "PJRT plugins"),
    (7.6, 3, 1.6, 1, DEVICE, "check", "finds bugs"),
    (0, 4, 2.8, 1, CORE, "src/format", "GGUF, safetensors"),
    (2.8, 4, 9.2, 1, CORE, "src/graph", "types, ops.def, graph, verifier, passes, StableHLO text"),
    (0, 5, 12, 1, BASE, "src/base", "contexts and errors, memory, threads, random numbers, files, JSON: the only OS calls"),
)

NARROW = dict.fromkeys("ijl,.:;'|", 0.26) | dict.fromkeys("ft /rI-()", 0.34) | dict.fromkeys("mMwW", 0.86)


def width_of(text, size, bold):
    return size * sum(NARROW.get(c, 0.72 if c.isupper() else 0.56) for c in text) * (1.07 if bold else 1)


def main():
    column = (WIDTH - GAP) / 12
    height = 6 * (HEIGHT + GAP) + GAP
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="Helvetica,Arial,sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    for x, row, wide, rows, colour, title, text in BOXES:
        left, top = GAP + x * column, GAP + row * (HEIGHT + GAP)
        w, h = wide * column - GAP, rows * (HEIGHT + GAP) - GAP
        for part, size, bold in ((title, TITLE, True), (text, TEXT, False)):
            if width_of(part, size, bold) > w - PAD:
                sys.exit(f"make_layers.py: '{part}' is {width_of(part, size, bold):.0f} wide, but its box {w - PAD:.0f}; shorten it")
        middle, centre = left + w / 2, top + h / 2
        parts.append(f'<rect x="{left:.0f}" y="{top:.0f}" width="{w:.0f}" height="{h:.0f}" rx="8" fill="{colour}" stroke="#4a6fa5"/>')
        parts.append(f'<text x="{middle:.0f}" y="{centre - 4:.0f}" text-anchor="middle" font-size="{TITLE}" font-weight="bold" fill="#223">{title}</text>')
        parts.append(f'<text x="{middle:.0f}" y="{centre + 15:.0f}" text-anchor="middle" font-size="{TEXT}" fill="#445">{text}</text>')
    with open(sys.argv[1] if len(sys.argv) > 1 else OUT, "w") as f:
        f.write("\n".join(parts) + "\n</svg>\n")


main()
