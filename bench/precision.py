#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loss curves in f32, bf16 and f16, several seeds of each: whether a change of type moves them, beside what a change of seed does.

    bench/precision.py run --data FOLDER --json bench/results/precision-h200.json [--device cuda] [--seeds 5]
    bench/precision.py chart bench/results/precision-h200.json docs/pictures/cuda-loss.svg

FOLDER is what `weft prepare` made of a text. The file has means over windows of 50 steps of each run. For each type it says how far
the mean of its seeds is from f32's at most, in any window, and what part that is of the standard error of the difference of two such means:
below 2, seeds alone explain it. `chart` draws means, and where f32's seeds are within one standard deviation.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

TYPES = ("f32", "bf16", "f16")
COLOURS = {"f32": "#777777", "bf16": "#2364aa", "f16": "#c2731c"}
STEPS, WINDOW = 1000, 50
SHAPE = ("--depth", 4, "--batch", 16, "--length", 256, "--steps", STEPS)


def train(args, out, type_, seed):
    """-> a run: means of windows, the last loss on data held back, steps skipped."""
    command = [args.weft, "train", "--data", args.data, "--out", out, *map(str, SHAPE), "--compute", type_, "--seed", str(seed),
               "--device", args.device, "--save-every", "0", "--valid-every", "100", "--export", "none", "-q"]
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(command)} failed: {p.stderr[-2000:]}")
    with open(os.path.join(out, "log.jsonl")) as f:
        events = [json.loads(line) for line in f]
    steps = [e for e in events if e["event"] == "step"]
    loss = [e["loss"] for e in steps]
    if len(loss) != STEPS:
        sys.exit(f"{len(loss)} steps in the log instead of {STEPS}")
    return {"type": type_, "seed": seed, "skipped": steps[-1]["skipped"], "valid": [e for e in events if e["event"] == "valid"][-1]["loss"],
            "loss": [round(statistics.mean(loss[i:i + WINDOW]), 4) for i in range(0, STEPS, WINDOW)]}


def columns(runs, type_, what):
    """`what` over the windows of the runs of a type."""
    return [what(column) for column in zip(*(r["loss"] for r in runs if r["type"] == type_))]


def summary(runs, seeds):
    mean = {t: columns(runs, t, statistics.mean) for t in TYPES}
    deviation = {t: columns(runs, t, statistics.stdev) for t in TYPES}
    rows = []
    for t in TYPES:
        away = [abs(a - b) for a, b in zip(mean[t], mean["f32"])]
        errors = [((a * a + b * b) / seeds) ** 0.5 for a, b in zip(deviation[t], deviation["f32"])]
        valid = [r["valid"] for r in runs if r["type"] == t]
        rows.append({"type": t, "last": round(mean[t][-1], 4), "deviation_of_seeds": round(max(deviation[t]), 4), "most_from_f32": round(max(away), 4),
                     "in_standard_errors": round(max(a / e for a, e in zip(away, errors)), 2), "valid": round(statistics.mean(valid), 4),
                     "valid_deviation": round(statistics.stdev(valid), 4), "skipped": sum(r["skipped"] for r in runs if r["type"] == t)})
    return rows


def measure(args):
    version = subprocess.run([args.weft, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    devices = subprocess.run([args.weft, "devices"], capture_output=True, text=True, check=True).stdout
    runs = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(1, args.seeds + 1):
            for t in TYPES:
                runs.append(train(args, os.path.join(scratch, f"{t}-{seed}"), t, seed))
                print(f"{t:4} seed {seed}: loss {runs[-1]['loss'][-1]:.4f}, held back {runs[-1]['valid']:.4f}", flush=True)
    rows = summary(runs, args.seeds)
    for r in rows:
        print(f"{r['type']:4} {r['last']:.4f}, at most {r['most_from_f32']:.4f} from f32 ({r['in_standard_errors']} standard errors), "
              f"seeds deviate by {r['deviation_of_seeds']:.4f}; held back {r['valid']:.4f} +- {r['valid_deviation']:.4f}; {r['skipped']} skipped")
    with open(args.json, "w") as f:
        json.dump({"date": datetime.date.today().isoformat(), "weft": version,
                   "device": next((line.strip() for line in devices.splitlines() if line.startswith(args.device)), args.device),
                   "command": " ".join(["weft train", *map(str, SHAPE), "--compute TYPE --seed SEED --device", args.device]),
                   "window": WINDOW, "types": rows, "runs": runs}, f, indent=1)
        f.write("\n")


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
    for step in range(0, STEPS + 1, 200):
        out.append(f'<text x="{left + width * step / STEPS:.1f}" y="{top + height + 18}" text-anchor="middle">{step}</text>')
    for n, t in enumerate(TYPES):
        points = " ".join(at(i, m) for i, m in enumerate(mean[t]))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[t]}" stroke-width="1.5"{" stroke-dasharray=" + chr(34) + "6 3" + chr(34) if t != "f32" else ""}/>'
                   f'<path d="M{left + 90 * n} 38h24" stroke="{COLOURS[t]}" stroke-width="2"/><text x="{left + 30 + 90 * n}" y="42">{t}</text>')
    seeds = len({r["seed"] for r in runs})
    with open(args.out, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {top + height + 30}" font-family="sans-serif" font-size="12">'
                f'<rect width="100%" height="100%" fill="#fff"/><text x="{left}" y="20" font-weight="bold">Loss in {STEPS} steps on tinyshakespeare, on the GPU: '
                f'means of {seeds} seeds over {window} steps</text>{"".join(out)}<rect x="{left + 280}" y="32" width="24" height="12" fill="#ccc"/>'
                f'<text x="{left + 310}" y="42">one standard deviation of f32\'s seeds</text></svg>\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest="verb", required=True)
    r = verbs.add_parser("run")
    r.add_argument("--weft", default="build/weft")
    r.add_argument("--device", default="cuda")
    r.add_argument("--seeds", default=5, type=int)
    r.add_argument("--data", required=True)
    r.add_argument("--json", required=True)
    c = verbs.add_parser("chart")
    c.add_argument("json")
    c.add_argument("out")
    args = p.parse_args()
    {"run": measure, "chart": chart}[args.verb](args)


if __name__ == "__main__":
    main()
