#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""chart.py OUT.svg: draws Weft's speedup over its peers on the CPU from the ratios in
bench/results/versus-*.json.

A row is a measurement, a mark an instruction set, and the line a ratio of 1. Run it again when a
file changes; tests/test_docs.c compares its output with docs/pictures/versus-cpu.svg."""
import json
import math
import os
import re
import sys

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
SETS = (("avx2", "AVX2, 2 threads", "#c2731c"), ("avx512", "AVX-512, 2 threads", "#2364aa"), ("amx16", "AMX, 16 threads", "#3a7d44"))
MODELS = (("smollm2", "SmolLM2 Q4_1"), ("q4_0", "1B Q4_0"), ("q8_0", "1B Q8_0"), ("q4_K", "1B Q4_K"), ("q6_K", "1B Q6_K"), ("f16", "1B F16"))
LEFT, RIGHT, TOP, ROW, LOW, HIGH = 190, 700, 64, 20, 0.5, 32


def ratios(what, name):
    """Returns {measurement: ratio of medians} of one file; empty if the file is missing."""
    path = os.path.join(RESULTS, f"versus-{what}-{name}.json")
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        return {r["name"]: r["ratio_of_medians"] for r in json.load(f)["results"]}


def find(rows, model, test):
    return next((v for k, v in rows.items() if re.search(rf"[ -]{model}\b.*{test}|\b{model}-.*{test}", k)), None)


def sections():
    """Returns [(title, [(row, {set: ratio})])]."""
    out = []
    for title, what, test in (("decode, against llama.cpp", "model", "tg128"), ("prompt of 512 tokens, against llama.cpp", "model", "pp512"),
                              ("start, load and two tokens, against llama.cpp", "load", "two tokens"), ("peak memory, against llama.cpp", "load", "resident")):
        files = {s: ratios(what, s) for s, _, _ in SETS}
        out.append((title, [(label, {s: find(files[s], model, test) for s in files}) for model, label in MODELS]))
    train = []
    for length in (64, 512):
        for peer, label in (("pytorch", "PyTorch"), ("llmc", "llm.c")):
            values = {s: next(iter(ratios(f"train-{length}-{peer}", s).values()), None) for s, _, _ in SETS}
            train.append((f"4 x {length}, {label}", values))
    out.append(("training step of GPT-2 124M in f32", train))
    return out


def x_of(ratio):
    return LEFT + (RIGHT - LEFT) * math.log(ratio / LOW) / math.log(HIGH / LOW)


def main():
    parts, y = [], TOP
    for title, rows in sections():
        parts.append(f'<text x="{LEFT}" y="{y + 14}" class="t">{title}</text>')
        y += 24
        for label, values in rows:
            parts.append(f'<text x="{LEFT - 10}" y="{y + 14}" class="l">{label}</text><line x1="{LEFT}" x2="{RIGHT}" y1="{y + 10}" y2="{y + 10}" class="g"/>')
            for name, _, colour in SETS:
                if values.get(name):
                    parts.append(f'<circle cx="{x_of(values[name]):.1f}" cy="{y + 10}" r="5" fill="{colour}"><title>{values[name]:.2f}</title></circle>')
            y += ROW
        y += 10
    ticks = "".join(f'<line x1="{x_of(t):.1f}" x2="{x_of(t):.1f}" y1="{TOP}" y2="{y}" class="{"e" if t == 1 else "g"}"/><text x="{x_of(t):.1f}" y="{y + 16}" class="a">{t:g}x</text>'
                    for t in (0.5, 1, 2, 4, 8, 16, 32))
    legend = "".join(f'<circle cx="{LEFT + 6 + i * 170}" cy="40" r="5" fill="{c}"/><text x="{LEFT + 18 + i * 170}" y="44">{label}</text>' for i, (_, label, c) in enumerate(SETS))
    style = "text{font:12px sans-serif;fill:#222}.t{font-weight:bold}.l{text-anchor:end}.a{text-anchor:middle;fill:#666}.g{stroke:#ddd}.e{stroke:#222}"
    with open(sys.argv[1], "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{RIGHT + 40}" height="{y + 30}" viewBox="0 0 {RIGHT + 40} {y + 30}"><style>{style}</style>'
                f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="22" class="t">Speedup (or memory ratio) of Weft over its peers on the CPU; right is better</text>'
                f'{legend}{ticks}{"".join(parts)}</svg>\n')


main()
