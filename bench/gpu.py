#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of GPT-2 on a GPU: Weft, as it is and with --fast, and a peer on the same work in the same run.

    bench/gpu.py run --peer 'python3 torch_train.py' --json bench/results/versus-train-gpu-h200.json [--raw FOLDER]
    bench/gpu.py chart bench/results/versus-train-gpu-h200.json docs/pictures/versus-gpu.svg

The peer is called as COMMAND NAME BATCH LENGTH and prints "ms=X" for the median step and "mem=X GiB" for the most memory it
took; NAME is d12, d24 or d48 by the number of layers. Medians of steps are compared. --raw keeps what `weft bench train --json` wrote.
"""
import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys

SETUPS = (("gpt2-124M", "d12", 64), ("gpt2-350M", "d24", 32), ("gpt2-1558M", "d48", 16))
LENGTH = 1024
GIB = 2 ** 30


def weft(args, model, batch, fast, name):
    """-> the JSON of one measurement."""
    path = os.path.join(args.raw, name) if args.raw else "/tmp/weft-gpu-bench.json"
    command = [args.weft, "bench", "train", model, "--device", args.device, "--precision", "bf16", "--batch", str(batch),
               "--length", str(LENGTH), "-r", str(args.steps), "--ops", "--no-peak", "-q", "--json", path] + (["--fast"] if fast else [])
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{shlex.join(command)} failed: {p.stderr[-2000:]}")
    with open(path) as f:
        return json.load(f)["bench"]


def peer(args, name, batch):
    """-> milliseconds a step, GiB."""
    command = shlex.split(args.peer) + [name, str(batch), str(LENGTH)]
    p = subprocess.run(command, capture_output=True, text=True)
    ms, memory = re.search(r"\bms=([\d.]+)", p.stdout), re.search(r"\bmem=([\d.]+)", p.stdout)
    if p.returncode or not ms or not memory:
        sys.exit(f"{shlex.join(command)} failed: {p.stdout[-500:]} {p.stderr[-2000:]}")
    return float(ms.group(1)), float(memory.group(1))


def measure(args):
    rows, about = [], {}
    for model, name, batch in SETUPS:
        if args.only and model not in args.only:
            continue
        ours = [weft(args, model, batch, fast, f"bench-train-{model}{'-fast' if fast else ''}-{args.name}.json") for fast in (0, 1)]
        peer_ms, peer_gib = peer(args, name, batch)
        ms = [x["results"][0]["ms_per_step_median"] for x in ours]
        gib = ours[0]["training"]["planned_bytes"] / GIB
        about = {k: ours[0][k] for k in ("version", "commit", "build", "machine") if k in ours[0]}
        rows.append({"model": model, "batch": batch, "length": LENGTH, "weft_ms": ms[0], "weft_fast_ms": ms[1], "peer_ms": peer_ms,
                     "weft_tokens_per_s": batch * LENGTH / ms[0] * 1e3, "weft_fast_tokens_per_s": batch * LENGTH / ms[1] * 1e3,
                     "peer_tokens_per_s": batch * LENGTH / peer_ms * 1e3, "ratio": round(peer_ms / ms[0], 3),
                     "ratio_fast": round(peer_ms / ms[1], 3), "weft_gib": round(gib, 2), "peer_gib": peer_gib,
                     "memory_ratio": round(gib / peer_gib, 3)})
        r = rows[-1]
        print(f"{model:12} weft {r['weft_ms']:7.1f} ms {r['weft_tokens_per_s']:9.0f} tok/s ({r['ratio']:.2f}x), --fast {r['weft_fast_ms']:7.1f} ms "
              f"{r['weft_fast_tokens_per_s']:9.0f} ({r['ratio_fast']:.2f}x), peer {peer_ms:7.1f} ms {r['peer_tokens_per_s']:9.0f}; "
              f"memory {gib:.1f} against {peer_gib:.1f} GiB", flush=True)
    with open(args.json, "w") as f:
        json.dump({"date": datetime.date.today().isoformat(), "weft": about, "peer": {"name": args.peer_name, "command": os.path.basename(args.peer)},
                   "results": rows}, f, indent=2)
        f.write("\n")


def chart(args):
    with open(args.json) as f:
        data = json.load(f)
    width, left, top, bar, gap = 720, 110, 56, 22, 26
    colours = (("weft_fast_tokens_per_s", "Weft --fast", "#2364aa"), ("weft_tokens_per_s", "Weft", "#6ba0d8"), ("peer_tokens_per_s", data["peer"]["name"], "#c2731c"))
    out, y = [], top
    for r in data["results"]:
        most = max(r[k] for k, _, _ in colours)
        out.append(f'<text x="{left - 10}" y="{y + 1.5 * bar + 5}" class="l">{r["model"]}</text>')
        for key, _, colour in colours:
            w = (width - left - 150) * r[key] / most
            ratio = r[key] / r["peer_tokens_per_s"]
            out.append(f'<rect x="{left}" y="{y}" width="{w:.1f}" height="{bar - 3}" fill="{colour}"/>'
                       f'<text x="{left + w + 6:.1f}" y="{y + 14}">{r[key] / 1e3:.1f}k tokens/s, {ratio:.2f}x</text>')
            y += bar
        y += gap
    legend = "".join(f'<rect x="{left + 150 * i}" y="34" width="12" height="12" fill="{c}"/><text x="{left + 150 * i + 18}" y="44">{n}</text>'
                     for i, (_, n, c) in enumerate(colours))
    with open(args.out, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" font-family="sans-serif" font-size="12">'
                f'<style>.l{{text-anchor:end;font-weight:bold}}</style><rect width="{width}" height="{y}" fill="#fff"/>'
                f'<text x="{left}" y="20" font-weight="bold">Training GPT-2 in bf16 on one GPU, sequences of 1024 tokens</text>{legend}{"".join(out)}</svg>\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest="verb", required=True)
    r = verbs.add_parser("run")
    r.add_argument("--weft", default="build/weft")
    r.add_argument("--device", default="cuda")
    r.add_argument("--peer", required=True)
    r.add_argument("--peer-name", default="PyTorch, torch.compile")
    r.add_argument("--name", default="h200", help="of the machine, in names of files")
    r.add_argument("--steps", default=20, type=int)
    r.add_argument("--only", action="append")
    r.add_argument("--raw")
    r.add_argument("--json", required=True)
    c = verbs.add_parser("chart")
    c.add_argument("json")
    c.add_argument("out")
    args = p.parse_args()
    {"run": measure, "chart": chart}[args.verb](args)


if __name__ == "__main__":
    main()
