#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loss curves in f32, bf16 and f16 with several seeds each: compares the effect of the type with
the effect of the seed.

    bench/precision.py run --data FOLDER --json bench/results/precision-h200.json [--device cuda] [--seeds 5]
    bench/precision.py chart bench/results/precision-h200.json docs/pictures/cuda-loss.svg

FOLDER is the output of `weft prepare TEXT --vocab 2048`. The JSON file has means over windows of 50
steps of each run. A run and the f32 run of the same seed start from the same weights and read the
same batches, so the test judges their differences. `from_f32` is the mean difference over the seeds
and `error` its standard error, both for the window with the largest ratio of the two. The bound is
BOUND standard errors in every window; the exit status is 1 if a type exceeds it. `chart` draws the
means, and one standard deviation of f32's seeds.
"""
import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

TYPES = ("f32", "bf16", "f16")
COLOURS = {"f32": "#777777", "bf16": "#2364aa", "f16": "#c2731c"}
STEPS, WINDOW = 1000, 50
FLAGS = ("--depth", 4, "--batch", 16, "--length", 256, "--steps", STEPS, "--save-every", 0, "--valid-every", 100, "--export", "none", "-q")
BOUND = 2.8  # 5% of Student's t with 4 degrees of freedom exceed it


def command(args, out, type_, seed, data=None):
    return [args.weft, "train", "--data", data or args.data, "--out", out, *map(str, FLAGS), "--compute", str(type_), "--seed", str(seed), "--device", args.device]


def train(args, out, type_, seed):
    """Returns a run: means of windows, the last validation loss, and skipped steps."""
    p = subprocess.run(command(args, out, type_, seed), capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{shlex.join(p.args)} failed: {p.stderr[-2000:]}")
    with open(os.path.join(out, "log.jsonl")) as f:
        events = [json.loads(line) for line in f]
    steps = [e for e in events if e["event"] == "step"]
    loss = [e["loss"] for e in steps]
    if len(loss) != STEPS:
        sys.exit(f"{len(loss)} steps in the log instead of {STEPS}")
    return {"type": type_, "seed": seed, "skipped": steps[-1]["skipped"], "valid": [e for e in events if e["event"] == "valid"][-1]["loss"],
            "loss": [round(statistics.mean(loss[i:i + WINDOW]), 4) for i in range(0, STEPS, WINDOW)]}


def columns(runs, type_, what):
    """`what` by window, for the runs of a type."""
    return [what(column) for column in zip(*(r["loss"] for r in runs if r["type"] == type_))]


def most_away(runs, type_):
    """Returns mean difference and standard error of the window where their ratio is largest."""
    base = {r["seed"]: r["loss"] for r in runs if r["type"] == "f32"}
    apart = [[a - b for a, b in zip(r["loss"], base[r["seed"]])] for r in runs if r["type"] == type_]
    windows = [(statistics.mean(d), statistics.stdev(d) / len(d) ** 0.5) for d in zip(*apart)]
    return max(windows, key=lambda w: abs(w[0]) / max(w[1], 1e-9))


def summary(runs):
    rows = []
    for t in TYPES:
        mine = [r for r in runs if r["type"] == t]
        valid = [r["valid"] for r in mine]
        mean, error = most_away(runs, t)
        rows.append({"type": t, "last": round(statistics.mean(r["loss"][-1] for r in mine), 4),
                     "deviation_of_seeds": round(max(columns(runs, t, statistics.stdev)), 4), "from_f32": round(mean, 4), "error": round(error, 4),
                     "valid": round(statistics.mean(valid), 4), "valid_deviation": round(statistics.stdev(valid), 4),
                     "skipped": sum(r["skipped"] for r in mine), "within_bound": abs(mean) <= BOUND * error})
    return rows


def measure(args):
    version = subprocess.run([args.weft, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    devices = subprocess.run([args.weft, "devices"], capture_output=True, text=True, check=True).stdout
    device = next((" ".join(line.split()) for line in devices.splitlines() if line.startswith(args.device)), args.device)
    data = {"date": datetime.date.today().isoformat(), "weft": version, "device": device,
            "command": "weft " + shlex.join(command(args, "RUN", "TYPE", "SEED", "FOLDER")[1:]), "window": WINDOW, "bound": BOUND, "types": [], "runs": []}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(1, args.seeds + 1):
            for t in TYPES:
                r = train(args, os.path.join(scratch, f"{t}-{seed}"), t, seed)
                data["runs"].append(r)
                print(f"{t:4} seed {seed}: loss {r['loss'][-1]:.4f}, held back {r['valid']:.4f}", flush=True)
            if seed > 1:
                data["types"] = summary(data["runs"])
            with open(args.json, "w") as f:
                json.dump(data, f, indent=1)
                f.write("\n")
    for r in data["types"]:
        print(f"{r['type']:4} {r['last']:.4f}, {r['from_f32']:+.4f} +- {r['error']:.4f} from f32 where it is most, "
              f"seeds deviate by {r['deviation_of_seeds']:.4f}; held back {r['valid']:.4f} +- {r['valid_deviation']:.4f}; {r['skipped']} skipped")
    sys.exit(not all(r["within_bound"] for r in data["types"]))


def chart(args):
    with open(args.json) as f:
        data = json.load(f)
    runs, window = data["runs"], data["window"]
    mean = {t: columns(runs, t, statistics.mean) for t in TYPES}
    deviation = columns(runs, "f32", statistics.stdev)
    low, high, left, top, width, height = 2.0, 8.0, 50, 50, 640, 330

    def at(i, loss):
        return f"{left + width * (i + 0.5) / len(deviation):.1f},{top + height * (high - loss) / (high - low):.1f}"

    band = [at(i, m + d) for i, (m, d) in enumerate(zip(mean["f32"], deviation))]
    band += [at(i, mean["f32"][i] - deviation[i]) for i in reversed(range(len(deviation)))]
    out = [f'<polygon points="{" ".join(band)}" fill="#ccc"/>']
    for loss in range(int(low), int(high) + 1):
        y = top + height * (high - loss) / (high - low)
        out.append(f'<path d="M{left} {y:.1f}h{width}" stroke="#eee"/><text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{loss}</text>')
    steps = window * len(deviation)
    for step in range(0, steps + 1, steps // 5):
        out.append(f'<text x="{left + width * step / steps:.1f}" y="{top + height + 18}" text-anchor="middle">{step}</text>')
    for n, t in enumerate(TYPES):
        points = " ".join(at(i, m) for i, m in enumerate(mean[t]))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[t]}" stroke-width="1.5"{" stroke-dasharray=" + chr(34) + "6 3" + chr(34) if t != "f32" else ""}/>'
                   f'<path d="M{left + 90 * n} 38h24" stroke="{COLOURS[t]}" stroke-width="2"/><text x="{left + 30 + 90 * n}" y="42">{t}</text>')
    seeds = len({r["seed"] for r in runs})
    with open(args.out, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {top + height + 30}" font-family="sans-serif" font-size="12">'
                f'<rect width="100%" height="100%" fill="#fff"/><text x="{left}" y="20" font-weight="bold">{args.title}: loss in {steps} steps, '
                f'means of {seeds} seeds over {window} steps</text>{"".join(out)}<rect x="{left + 280}" y="32" width="24" height="12" fill="#ccc"/>'
                f'<text x="{left + 310}" y="42">one standard deviation of f32\'s seeds</text></svg>\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest="verb", required=True)
    r = verbs.add_parser("run")
    r.add_argument("--weft", default="build/weft")
    r.add_argument("--device", default="cuda")
    r.add_argument("--seeds", default=5, type=int, help="2 at least")
    r.add_argument("--data", required=True)
    r.add_argument("--json", required=True)
    c = verbs.add_parser("chart")
    c.add_argument("--title", default="A model of 4 layers")
    c.add_argument("json")
    c.add_argument("out")
    args = p.parse_args()
    if args.verb == "run" and args.seeds < 2:
        p.error("--seeds is 2 at least")
    {"run": measure, "chart": chart}[args.verb](args)


if __name__ == "__main__":
    main()
