#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Perplexity, KL divergence and agreement of every quantized type, with and without an importance matrix,
of Weft's quantizer and of llama.cpp's.

    bench/perplexity.py --weft build/weft --llama-quantize PATH --model F16.gguf --text TEXT --calibrate TEXT
        [--types q4_0,Q4_K_M] [--tokens 8192] [--ctx 512] [--json OUT]

`weft eval --against MODEL` judges the files of both quantizers, in windows of --ctx tokens. Lower-case types are
quantized with --pure: every matrix has that type. Upper-case ones are recipes. The importance matrix comes from
`weft imatrix` on the text of --calibrate, and both quantizers read it. Prints a table in Markdown.
"""
import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile

PURE = "q8_0,q6_K,q5_K,q5_1,q5_0,q4_K,q4_1,q4_0,iq4_nl,iq4_xs,q3_K,q2_K"
# llama-quantize names K types by recipe; --pure takes the first type of the recipe.
LLAMA = {"q5_K": "Q5_K_S", "q4_K": "Q4_K_S", "q3_K": "Q3_K_S", "q2_K": "Q2_K"}


def run(command):
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{shlex.join(command)} failed: {p.stderr[-2000:]}")
    return p.stdout


def evaluate(o, file):
    command = [o.weft, "eval", file, "--data", o.text, "--against", o.model, "-c", str(o.ctx), "--json", "-q"]
    if o.tokens:
        command += ["--limit", str(o.tokens)]
    result = json.loads(run(command))
    result["bytes"] = os.path.getsize(file)
    return result


def quantize(o, who, kind, imatrix, out):
    pure = kind[0].islower()
    if who == "weft":
        command = [o.weft, "quantize", o.model, out, kind, "--overwrite"] + (["--pure"] if pure else [])
    else:
        command = [o.llama_quantize] + (["--pure"] if pure else [])
    command += ["--imatrix", imatrix] if imatrix else []
    if who != "weft":
        command += [o.model, out, LLAMA.get(kind, kind.upper()) if pure else kind]
    run(command)


def text_row(row):
    cells = [row["type"], "yes" if row["imatrix"] else "", f"{row['weft']['bytes'] / 1e6:.1f}"]
    for who in ("weft", "llama.cpp"):
        r = row.get(who)
        cells += [f"{r['perplexity']:.3f}", f"{r['kl_divergence']:.5f}", f"{100 * r['same_top_token']:.1f}%"] if r else ["", "", ""]
    ratio = row["weft"]["perplexity"] / row["llama.cpp"]["perplexity"] if "llama.cpp" in row else None
    cells.append(f"{ratio:.4f}" if ratio else "")
    return "| " + " | ".join(cells) + " |"


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--weft", required=True)
    a.add_argument("--llama-quantize")
    a.add_argument("--model", required=True)
    a.add_argument("--text", required=True)
    a.add_argument("--calibrate", required=True)
    a.add_argument("--types", default=PURE)
    a.add_argument("--tokens", type=int, default=0)
    a.add_argument("--ctx", type=int, default=512)
    a.add_argument("--note", default="")
    a.add_argument("--json")
    o = a.parse_args()
    rows = []
    print("| type | imatrix | MB | perplexity | KL | same token | llama.cpp: perplexity | KL | same token | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        matrix, file = os.path.join(scratch, "imatrix.gguf"), os.path.join(scratch, "m.gguf")
        run([o.weft, "imatrix", o.model, "--data", o.calibrate, "-o", matrix, "--chunks", "24", "-c", str(o.ctx), "-q"])
        for kind in o.types.split(","):
            for imatrix in (None, matrix):
                row = {"type": kind, "imatrix": bool(imatrix)}
                for who in ("weft", "llama.cpp") if o.llama_quantize else ("weft",):
                    if who == "llama.cpp" and kind == "Q2_K_S" and not imatrix:
                        continue  # llama.cpp refuses it
                    quantize(o, who, kind, imatrix, file)
                    row[who] = evaluate(o, file)
                    os.remove(file)
                rows.append(row)
                print(text_row(row), flush=True)
    if o.json:
        names = {"weft": "weft", "model": os.path.basename(o.model), "text": os.path.basename(o.text)}
        version = run([o.weft, "--version"]).strip()
        with open(o.json, "w", encoding="utf-8") as out:
            json.dump({"version": version, "date": datetime.date.today().isoformat(), "note": o.note, "ctx": o.ctx, **names,
                       "rows": rows}, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
