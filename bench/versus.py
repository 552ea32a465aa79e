#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares Weft with a peer: the same work, alternating, in one run.

The speed of a machine drifts, so only ratios from one run mean anything. The two programs alternate
for several rounds. The ratio of the medians counts; the ratio of the best rounds stands beside it,
and the lower end of a 95% bootstrap interval over the rounds. The command line names the peer;
nothing is built here.

    bench/versus.py gemm  --openblas libopenblas.so.0 --threads 1,2
    bench/versus.py model --llama-bench PATH MODEL.gguf ... --threads 2
    bench/versus.py load  --llama-bench PATH MODEL.gguf ... --threads 2
    bench/versus.py train --torch PYTHON --length 64 --threads 2
    bench/versus.py train --took 'COMMAND' --length 64 --threads 2     (prints "took X ms" per step)
    bench/versus.py self  --old PROGRAM MODEL.gguf ... --threads 2 --rounds 15

"self" compares --weft with an older Weft: prompt and decode of each model, and a training step. It
exits 1 when a lower bound is below --least. --cpu SET forces Weft's instruction set; --peer-env
NAME=VALUE sets the peer's environment.
"""
import argparse
import datetime
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, env=None):
    """Returns stdout and stderr."""
    p = subprocess.run(command, env=env, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{shlex.join(command)} failed: {p.stderr[-2000:]}")
    return p.stdout, p.stderr


def measured(command, env=None):
    """Returns the wall-clock seconds and the peak resident KiB of a program; drops its output."""
    start = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, env or os.environ,
                          file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                                        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{shlex.join(command)} failed")
    return time.perf_counter() - start, usage.ru_maxrss


def lower_bound(ratios, draws=4000):
    """The 2.5% quantile of the median ratio over resampled rounds. Deterministic."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[draws // 40]


class Report:
    def __init__(self, args):
        self.args, self.peer, self.weft, self.rows = args, {}, {}, {}

    def add(self, name, side, value, better):
        row = self.rows.setdefault(name, {"better": better, "weft": [], "peer": []})
        row[side].append(value)

    def about_weft(self, js):
        for key in ("version", "commit", "build", "compiler", "machine"):
            self.weft[key] = js[key]

    def finish(self):
        results = []
        for name, row in self.rows.items():
            if not row["weft"] or not row["peer"]:
                print(f"{name}: only one of the two has it", file=sys.stderr)
                continue
            median = {s: statistics.median(row[s]) for s in ("weft", "peer")}
            best = {s: (max if row["better"] == "higher" else min)(row[s]) for s in ("weft", "peer")}

            def ratio(of):
                return of["weft"] / of["peer"] if row["better"] == "higher" else of["peer"] / of["weft"]

            pairs = [ratio({"weft": w, "peer": q}) for w, q in zip(row["weft"], row["peer"])]
            results.append({"name": name, "better": row["better"], "weft_median": median["weft"], "peer_median": median["peer"],
                            "weft_best": best["weft"], "peer_best": best["peer"], "ratio_of_medians": round(ratio(median), 3),
                            "ratio_of_bests": round(ratio(best), 3),
                            "lower_bound": round(lower_bound(pairs), 3), "weft": row["weft"], "peer": row["peer"]})
        print(f"{'':44} {'weft':>10} {'peer':>10} {'ratio':>7} {'of best':>8} {'at least':>8}")
        for r in results:
            print(f"{r['name']:44} {r['weft_median']:10.4g} {r['peer_median']:10.4g} {r['ratio_of_medians']:7.2f}"
                  f" {r['ratio_of_bests']:8.2f} {r['lower_bound']:8.3f}")
        if self.args.json:
            with open(self.args.json, "w") as f:
                json.dump({"what": f"versus {self.args.what}", "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                           "command": shlex.join(["bench/versus.py"] + [public(a) for a in sys.argv[1:]]), "weft": self.weft,
                           "peer": self.peer, "cpu": self.args.cpu or "the best that the machine has", "rounds": self.args.rounds, "results": results}, f, indent=1)
                f.write("\n")
        return results


def public(argument):
    """The command to record: programs and models by name, without folders of this machine."""
    return re.sub(r"(^|[ =])/\S*/", r"\1", argument)


def weft_env(args, threads):
    env = dict(os.environ, WEFT_THREADS=str(threads))
    if args.cpu:
        env["WEFT_CPU"] = args.cpu
    return env


def peer_env(args, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    env.update(pair.split("=", 1) for pair in args.peer_env)
    return env


def weft_json(args, threads, *words):
    out, _ = run([args.weft, "bench", *words, "--json", "-", "--no-peak", "-q", "-t", str(threads)], weft_env(args, threads))
    return json.loads(out)["bench"]


def gemm(args, report):
    """Each shape separately; Weft and the peer run back to back."""
    for threads in args.threads:
        shapes = {}
        for r in weft_json(args, threads, "ops", "linear", "matmul", "--shape", "f32", "--repetitions", "1")["results"]:
            m = re.fullmatch(r"f32 (?:(\w\w) )?(\d+)x(\d+)x(\d+)", r["shape"])
            if m and int(m[2]) >= 256 and "packed" not in r["kernel"]:
                shapes[r["shape"]] = [r["op"] == "linear", m[1] or "nt", int(m[2]), int(m[3]), int(m[4])]
        for _ in range(args.rounds):
            for shape, numbers in shapes.items():
                op = "linear" if numbers[0] else "matmul"
                name = f"{threads} threads {op} {shape}, GFLOP/s"
                js = weft_json(args, threads, "ops", op, "--shape", shape)
                report.about_weft(js)
                for r in js["results"]:
                    if r["shape"] == shape and "packed" not in r["kernel"]:
                        report.add(name, "weft", r["flop"] / r["best_us"] / 1e3, "higher")
                command = [sys.executable, os.path.join(HERE, "peers", "openblas.py"), args.openblas, json.dumps({shape: numbers})]
                peer = json.loads(run(command, peer_env(args, threads))[0])
                report.peer = {"name": "OpenBLAS", "version": peer["config"], "core": peer["core"]}
                report.add(name, "peer", peer["gflops"][shape], "higher")


def warm(model):
    with open(model, "rb") as f:
        while f.read(1 << 24):
            pass


def model(args, report):
    for threads in args.threads:
        for path in args.models:
            warm(path)
            name = os.path.basename(path)
            for _ in range(args.rounds):
                js = weft_json(args, threads, path, "--repetitions", str(args.repeats))
                report.about_weft(js)
                for r in js["results"]:
                    report.add(f"{threads} threads {name} {r['test']}, tokens/s", "weft", r["tokens_per_s"], "higher")
                command = [args.llama_bench, "-m", path, "-t", str(threads), "-p", "512", "-n", "128", "-r", str(args.repeats), "-o", "json"]
                for r in json.loads(run(command, peer_env(args, threads))[0]):
                    test = f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"
                    report.peer = {"name": "llama.cpp llama-bench", "version": r["build_commit"], "cpu": r["cpu_info"], "backends": r["backends"]}
                    report.add(f"{threads} threads {name} {test}, tokens/s", "peer", r["avg_ts"], "higher")


def load(args, report):
    """A whole process that loads the model and computes two tokens: start, load, tokens, end."""
    for threads in args.threads:
        for path in args.models:
            warm(path)
            name = os.path.basename(path)
            report.about_weft(weft_json(args, threads, path, "--n-prompt", "1", "-n", "1", "--repetitions", "1"))
            for _ in range(args.rounds):
                ours = [args.weft, "bench", "decode", path, "-t", str(threads), "-n", "1", "--repetitions", "1", "-ctk", "f16", "--no-peak", "-q"]
                theirs = [args.llama_bench, "-m", path, "-t", str(threads), "-p", "0", "-n", "1", "-r", "1", "-o", "json"]
                for side, command, env in (("weft", ours, weft_env(args, threads)), ("peer", theirs, peer_env(args, threads))):
                    seconds, kib = measured(command, env)
                    report.add(f"{threads} threads {name} load and two tokens, s", side, seconds, "lower")
                    report.add(f"{threads} threads {name} most resident, MB", side, kib * 1024 / 1e6, "lower")
            out = json.loads(run(theirs, peer_env(args, threads))[0])
            report.peer = {"name": "llama.cpp llama-bench", "version": out[0]["build_commit"], "cpu": out[0]["cpu_info"]}


def train(args, report):
    for threads in args.threads:
        name = f"{threads} threads gpt2-124M 4 x {args.length}, ms a step"
        for _ in range(args.rounds):
            js = weft_json(args, threads, "train", "gpt2-124M", "--batch", "4", "--length", str(args.length), "--repetitions", str(args.steps))
            report.about_weft(js)
            report.add(name, "weft", js["results"][0]["ms_per_step_median"], "lower")
            if args.torch:
                command = [args.torch, os.path.join(HERE, "peers", "torch_gpt2.py"), "4", str(args.length), str(args.steps), str(threads)]
                peer = json.loads(run(command, peer_env(args, threads))[0])
                report.peer = {"name": "PyTorch", **{k: v for k, v in peer.items() if k != "ms"}}
                report.add(name, "peer", statistics.median(peer["ms"]), "lower")
            if args.took:
                out, err = run(["sh", "-c", args.took], peer_env(args, threads))
                steps = [float(ms) for ms in re.findall(r"took ([\d.]+) ms", out + err)]
                report.peer = {"name": args.peer_name, "command": public(args.took)}
                if len(steps) < 2:
                    sys.exit(f"{args.took} printed fewer than two steps")
                report.add(name, "peer", statistics.median(steps[1:]), "lower")  # the first step allocates


def self(args, report):
    """An older Weft as the peer. Each round runs both programs, and the order alternates."""
    device = ["-d", args.device] if args.device else []
    work = [[path, "--repetitions", str(args.repeats)] for path in args.models]
    work.append(["train", args.preset, "--batch", "4", "--length", str(args.length),
                 "--repetitions", str(args.steps)] + (["--precision", args.compute] if args.compute else []))
    programs = [("weft", args.weft), ("peer", args.old)]
    for threads in args.threads:
        for words in work:
            for turn in range(args.rounds):
                for side, program in programs[:: 1 if turn % 2 == 0 else -1]:
                    command = [program, "bench", *words, *device, "--json", "-", "--no-peak", "-q"]
                    command += [] if args.device else ["-t", str(threads)]
                    js = json.loads(run(command, weft_env(args, threads))[0])["bench"]
                    if side == "weft":
                        report.about_weft(js)
                    else:
                        report.peer = {"name": "Weft", "version": js["version"], "commit": js["commit"]}
                    for r in js["results"]:
                        if "tokens_per_s" in r and "test" in r:
                            name = f"{threads} threads {os.path.basename(words[0])} {r['test']}, tokens/s"
                            report.add(name, side, r["tokens_per_s"], "higher")
                        else:
                            name = f"{threads} threads {args.preset} 4 x {args.length}, ms per step"
                            report.add(name, side, r["ms_per_step_median"], "lower")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("gemm", "model", "load", "train", "self"))
    p.add_argument("models", nargs="*")
    p.add_argument("--weft", default="build/weft")
    p.add_argument("--threads", default="1", type=lambda s: [int(n) for n in s.split(",")])
    p.add_argument("--rounds", default=3, type=int)
    p.add_argument("--json", help="write the result there")
    p.add_argument("--cpu", help="Weft's instruction set (WEFT_CPU)")
    p.add_argument("--peer-env", action="append", default=[])
    p.add_argument("--peer-name", default="peer")
    p.add_argument("--peer-version", help="where the peer does not know its own")
    p.add_argument("--openblas", default="libopenblas.so.0")
    p.add_argument("--llama-bench", default="llama-bench")
    p.add_argument("--torch", help="a Python that has PyTorch")
    p.add_argument("--took", help="a command that trains")
    p.add_argument("--old", help="self: the Weft to compare with")
    p.add_argument("--least", default=0.97, type=float, help="self: the smallest lower bound that passes")
    p.add_argument("--preset", default="gpt2-124M", help="self: the model whose training step is timed")
    p.add_argument("--compute", help="self: the precision of the training step")
    p.add_argument("--device", help="self: the device of both programs (default: the CPU)")
    p.add_argument("--length", default=64, type=int)
    p.add_argument("--steps", default=6, type=int)
    p.add_argument("--repeats", default=2, type=int, help="runs of a model in each round, whose mean counts")
    args = p.parse_intermixed_args()
    if args.what in ("model", "load") and not args.models:
        p.error(f"{args.what} wants models")
    if args.what == "self" and not args.old:
        p.error("self wants --old PROGRAM")
    if args.what == "train" and bool(args.torch) == bool(args.took):
        p.error("train wants one of --torch and --took")
    if args.rounds < 1 or args.steps < 1 or args.repeats < 1:
        p.error("--rounds, --steps and --repeats want at least 1")
    if not all("=" in pair for pair in args.peer_env):
        p.error("--peer-env wants NAME=VALUE")
    report = Report(args)
    globals()[args.what](args, report)
    if args.peer_version:
        report.peer["version"] = args.peer_version
    results = report.finish()
    if args.what == "self" and any(r["lower_bound"] < args.least for r in results):
        sys.exit(f"a lower bound is below {args.least}")


if __name__ == "__main__":
    main()
