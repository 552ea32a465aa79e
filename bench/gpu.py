#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times training steps on a GPU: GPT-2 by Weft, with and without --fast, against peers on the same
work in the same run; and Llama in several sizes on GPU and CPU, with the latency of one token.

    bench/gpu.py run --peer 'PyTorch=python3 torch_train.py' --json bench/results/versus-train-gpu-h200.json [--raw FOLDER] [--only gpt2-124M]
    bench/gpu.py chart bench/results/versus-train-gpu-h200.json docs/pictures/versus-gpu.svg
    bench/gpu.py sizes --json bench/results/sizes-h200.json [--raw FOLDER]

--peer can be repeated. Each is called as COMMAND NAME BATCH LENGTH and prints "ms=X" for the median
step and "mem=X GiB" for its peak memory; NAME is d12, d24 or d48 by the number of layers. Medians
of steps are compared. --raw keeps the output of `weft bench train --json`. `run` writes its file
after each model, and keeps rows of other models that the same commit measured.
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
# Llama batches: as many rows as fit a GPU, and as many as a CPU computes in a few seconds.
SIZES = (("llama-30M", 64), ("llama-120M", 32), ("llama-350M", 16), ("llama-1B", 8))
CPU_BATCH, CPU_LENGTH = 2, 256
GIB = 2 ** 30


def bench(args, name, model, flags):
    """Returns the JSON of one measurement, and keeps it as `name`."""
    path = os.path.join(args.raw, name) if args.raw else "/tmp/weft-gpu-bench.json"
    command = [args.weft, "bench", "train", model, "--no-peak", "--json", path, "--overwrite"] + [str(x) for x in flags]
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{shlex.join(command)} failed: {p.stderr[-2000:]}")
    with open(path) as f:
        text = re.sub(r'(?m)^( *"command": )"(.*)",$', lambda m: f'{m[1]}"{without_folders(m[2])}",', f.read())
    with open(path, "w") as f:
        f.write(text)
    return json.loads(text)["bench"]


def without_folders(words):
    """Removes the folders of this machine from a command."""
    return re.sub(r"[^\s=]*/", "", words)


def about(measurement):
    return {k: measurement[k] for k in ("version", "commit", "build", "machine") if k in measurement}


def write(path, data):
    with open(path, "w") as f:
        command = ["bench/gpu.py"] + [without_folders(a) for a in sys.argv[1:]]
        json.dump({"date": datetime.date.today().isoformat(), "command": shlex.join(command), **data}, f, indent=2)
        f.write("\n")


def run_peer(command, name, batch):
    """Returns milliseconds per step, and GiB."""
    command = shlex.split(command) + [name, str(batch), str(LENGTH)]
    p = subprocess.run(command, capture_output=True, text=True)
    ms, memory = re.search(r"\bms=([\d.]+)", p.stdout), re.search(r"\bmem=([\d.]+)", p.stdout)
    if p.returncode or not ms or not memory:
        sys.exit(f"{shlex.join(command)} failed: {p.stdout[-500:]} {p.stderr[-2000:]}")
    return float(ms.group(1)), float(memory.group(1))


def rows_of_before(path, weft, peers):
    """Rows of other models that the same commit measured against the same peers."""
    try:
        with open(path) as f:
            data = json.load(f)
    except FileNotFoundError:
        return {}
    same = data["weft"].get("commit") == weft.get("commit") and data["peers"] == peers
    return {r["model"]: r for r in data["results"]} if same else {}


def measure(args):
    peers = [dict(zip(("name", "command"), p.split("=", 1))) for p in args.peer]
    about_peers = [{"name": p["name"], "command": os.path.basename(p["command"])} for p in peers]
    for model, name, batch in SETUPS:
        if args.only and model not in args.only:
            continue
        tokens = batch * LENGTH
        flags = ["--device", args.device, "--precision", "bf16", "--batch", batch, "--length", LENGTH, "--repetitions", args.steps, "--ops"]
        ours = [bench(args, f"bench-train-{model}{'-fast' if fast else ''}-{args.name}.json", model, flags + fast)
                for fast in ([], ["--fast"])]
        ms, fast_ms = [x["results"][0]["ms_per_step_median"] for x in ours]
        gib = ours[0]["training"]["planned_bytes"] / GIB
        r = {"model": model, "batch": batch, "length": LENGTH, "weft_ms": ms, "weft_fast_ms": fast_ms, "weft_tokens_per_s": tokens / ms * 1e3,
             "weft_fast_tokens_per_s": tokens / fast_ms * 1e3, "weft_gib": round(gib, 2), "peers": {}}
        print(f"{model:12} weft {ms:7.1f} ms {r['weft_tokens_per_s']:9.0f} tok/s, --fast {fast_ms:7.1f} ms {r['weft_fast_tokens_per_s']:9.0f}, "
              f"{gib:.1f} GiB", flush=True)
        for p in peers:
            peer_ms, peer_gib = run_peer(p["command"], name, batch)
            r["peers"][p["name"]] = {"ms": peer_ms, "tokens_per_s": tokens / peer_ms * 1e3, "gib": peer_gib, "ratio": round(peer_ms / ms, 3),
                                     "ratio_fast": round(peer_ms / fast_ms, 3), "memory_ratio": round(gib / peer_gib, 3)}
            print(f"{'':12} {p['name']} {peer_ms:7.1f} ms {tokens / peer_ms * 1e3:9.0f} tok/s, {peer_gib:.1f} GiB: weft {peer_ms / ms:.2f}x, "
                  f"--fast {peer_ms / fast_ms:.2f}x, memory {gib / peer_gib:.2f}x", flush=True)
        rows = rows_of_before(args.json, ours[0], about_peers) | {model: r}
        write(args.json, {"weft": about(ours[0]), "peers": about_peers, "results": [rows[m] for m, _, _ in SETUPS if m in rows]})


def sizes(args):
    """A training step of each size, and decode of one token at depth LENGTH, on GPU and CPU."""
    rows = []
    print("| | parameters | GPU, tokens/s | CPU, tokens/s | | GPU, ms a token | CPU, ms a token | |\n|---|---|---|---|---|---|---|---|")
    for model, batch in SIZES:
        def one(device, kind, *flags):
            return bench(args, f"bench-{kind}-{model}-{device}-{args.name}.json", model, ("--device", device) + flags)

        gpu = one(args.device, "train", "--precision", "bf16", "--batch", batch, "--length", LENGTH, "--repetitions", args.steps)
        cpu = one("cpu", "train", "--precision", "bf16", "--batch", CPU_BATCH, "--length", CPU_LENGTH, "--repetitions", 1)
        token = [one(d, "decode", "--form", "decode", "--length", LENGTH, "--repetitions", 20) for d in (args.device, "cpu")]
        r = {"model": model, "parameters": gpu["training"]["parameters"], "gpu_batch": batch, "gpu_length": LENGTH,
             "gpu_tokens_per_s": gpu["results"][0]["tokens_per_s"], "cpu_batch": CPU_BATCH, "cpu_length": CPU_LENGTH,
             "cpu_tokens_per_s": cpu["results"][0]["tokens_per_s"], "gpu_gib": round(gpu["training"]["planned_bytes"] / GIB, 2),
             "gpu_ms_per_token": token[0]["results"][0]["ms_per_step_median"], "cpu_ms_per_token": token[1]["results"][0]["ms_per_step_median"]}
        rows.append(r)
        print(f"| {model} | {r['parameters'] / 1e6:.0f} M | {r['gpu_tokens_per_s']:,.0f} | {r['cpu_tokens_per_s']:,.0f} | "
              f"{r['gpu_tokens_per_s'] / r['cpu_tokens_per_s']:.0f}x | {r['gpu_ms_per_token']:.2f} | {r['cpu_ms_per_token']:.2f} | "
              f"{r['cpu_ms_per_token'] / r['gpu_ms_per_token']:.1f}x |", flush=True)
        write(args.json, {"weft": {args.device: about(gpu), "cpu": about(cpu)}, "results": rows})


def chart(args):
    with open(args.json) as f:
        data = json.load(f)
    width, left, top, bar, gap = 720, 110, 56, 22, 26
    names = [p["name"] for p in data["peers"]]
    colours = list(zip(["Weft --fast", "Weft"] + names, ("#2364aa", "#6ba0d8", "#c2731c", "#8a9a5b", "#777777")))
    out, y = [], top
    for r in data["results"]:
        rates = [r["weft_fast_tokens_per_s"], r["weft_tokens_per_s"]] + [r["peers"][n]["tokens_per_s"] for n in names]
        out.append(f'<text x="{left - 10}" y="{y + len(rates) * bar / 2 + 4}" class="l">{r["model"]}</text>')
        for rate, (_, colour) in zip(rates, colours):
            w = (width - left - 150) * rate / max(rates)
            out.append(f'<rect x="{left}" y="{y}" width="{w:.1f}" height="{bar - 3}" fill="{colour}"/>'
                       f'<text x="{left + w + 6:.1f}" y="{y + 14}">{rate / 1e3:.1f}k tokens/s, {rate / rates[2]:.2f}x</text>')
            y += bar
        y += gap
    legend = "".join(f'<rect x="{left + 150 * i}" y="34" width="12" height="12" fill="{c}"/><text x="{left + 150 * i + 18}" y="44">{n}</text>'
                     for i, (n, c) in enumerate(colours))
    with open(args.out, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" font-family="sans-serif" font-size="12">'
                f'<style>.l{{text-anchor:end;font-weight:bold}}</style><rect width="{width}" height="{y}" fill="#fff"/>'
                f'<text x="{left}" y="20" font-weight="bold">Training GPT-2 in bf16 on one GPU, sequences of 1024 tokens</text>{legend}{"".join(out)}</svg>\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest="verb", required=True)
    r, z = verbs.add_parser("run"), verbs.add_parser("sizes")
    r.add_argument("--peer", required=True, action="append", metavar="NAME=COMMAND")
    r.add_argument("--only", action="append")
    for v in r, z:
        v.add_argument("--weft", default="build/weft")
        v.add_argument("--device", default="cuda")
        v.add_argument("--name", default="h200", help="of the machine, in names of files")
        v.add_argument("--steps", default=20, type=int)
        v.add_argument("--raw")
        v.add_argument("--json", required=True)
    c = verbs.add_parser("chart")
    c.add_argument("json")
    c.add_argument("out")
    args = p.parse_args()
    if args.verb == "run" and not all("=" in x for x in args.peer):
        p.error("--peer is NAME=COMMAND")
    {"run": measure, "sizes": sizes, "chart": chart}[args.verb](args)


if __name__ == "__main__":
    main()
