#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""engine.py MODEL [--weft build/weft] [--json FILE]: speed of the inference engine with many sequences.

Each row compares two measurements of `weft bench` that run in turns:
  decode of N sequences, beside prompts of N tokens with logits of every token: the same matmuls in one run
  one sequence in an engine for 32, beside one in an engine for 1
  32 prompts that share 1000 tokens, with and without the prefix cache
Ratios are of medians; `goal` is the least ratio."""
import argparse
import json
import platform
import statistics
import subprocess
import sys

DECODE = ["decode", "--depth", "200", "-n", "128"]
ROWS = (
    ("8 sequences decode / prompt of 8 tokens", 0.75,
     [*DECODE, "--parallel", "8"], ["prefill", "--n-prompt", "8", "--logits"]),
    ("32 sequences decode / prompt of 32 tokens", 0.80,
     [*DECODE, "--parallel", "32"], ["prefill", "--n-prompt", "32", "--logits"]),
    ("one sequence of 32 / of 1", 0.95, [*DECODE, "--slots", "32"], DECODE),
    ("32 prompts that share 1000 tokens: reuse / no reuse", 5.0,
     ["prefill", "--parallel", "32", "--n-prompt", "1016", "--shared", "1000"],
     ["prefill", "--parallel", "32", "--n-prompt", "1016", "--shared", "1000", "--no-reuse"]),
)


def measure(weft, model, args, threads):
    # Short prompts take milliseconds: more repetitions.
    repeats = "40" if "--logits" in args else "1"
    command = [weft, "bench", args[0], model, *args[1:], "-t", str(threads), "--repetitions", repeats, "--no-peak",
               "-o", "json", "-q"]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return out["bench"]["results"][0]["tokens_per_s"], out["bench"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--weft", default="build/weft")
    p.add_argument("--threads", default=2, type=int)
    p.add_argument("--rounds", default=5, type=int)
    p.add_argument("--json", help="write the results there")
    o = p.parse_args()
    results, about = [], None
    for name, goal, one, other in ROWS:
        rates = ([], [])
        for _ in range(o.rounds):
            for k, args in enumerate((one, other)):
                rate, about = measure(o.weft, o.model, args, o.threads)
                rates[k].append(rate)
        medians = [statistics.median(r) for r in rates]
        ratio = medians[0] / medians[1]
        results.append({"name": name, "goal": goal, "ratio": round(ratio, 3), "medians": medians,
                        "commands": ["weft bench " + " ".join(a) for a in (one, other)], "rates": rates})
        print(f"{name:54} {medians[0]:9.1f} {medians[1]:9.1f} tokens/s  {ratio:6.2f}  "
              f"{'ok' if ratio >= goal else 'below'} {goal}", flush=True)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"what": "engine", "command": "bench/engine.py " + " ".join(
                a.rsplit("/", 1)[-1] for a in sys.argv[1:]), "weft": {k: about[k] for k in about if k not in ("results", "model")},
                "model": about.get("model"), "python": platform.python_version(), "results": results}, f, indent=1)
            f.write("\n")
    return 0 if all(r["ratio"] >= r["goal"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
