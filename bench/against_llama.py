#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares Weft's logits with llama.cpp's on the checkpoints of tests/fixtures/models.

    bench/against_llama.py --peer PROGRAM --peer-version TEXT [--weft build-test/weft]
        [--logits build-test/tests/tools/logits] [--json FILE] [NAME...]

`PROGRAM MODEL.gguf ID...` writes the logits after each token to stdout: f32 in host byte order, [IDs][vocabulary].
It computes all tokens in one batch, with an f32 KV cache, without flash attention, in a context for the IDs. The
command line names it; nothing is built here.

`weft convert --type f32` makes the file that both programs read. The tokens are those of reference.json: the prompt
and the greedy tokens. Weft (tests/tools/logits.c) has an f32 KV cache, too. KL is that of Weft's distribution from
llama.cpp's, in float64 and nats per token. Logit differences are relative to the largest logit.

llama.cpp ignores some windows (IGNORED). These checkpoints are also compared with a window wider than the text, and
must then agree. Exits 1 if a mean KL exceeds BOUND, or if a checkpoint of IGNORED agrees as it is. Standard library only.
"""
import argparse
import datetime
import json
import math
import os
import re
import shlex
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures", "models")
BOUND = 1e-6  # of the mean KL
IGNORED = ("mistral", "phi3", "qwen2")  # checkpoints whose sliding window llama.cpp ignores
WIDER = {"sliding_window": 4096}


def run(command, stdin=None):
    """Returns stdout, bytes."""
    p = subprocess.run(command, input=stdin, capture_output=True)
    if p.returncode:
        sys.exit(f"{shlex.join(command[:2])} failed: {p.stderr.decode(errors='replace')[-2000:]}")
    return p.stdout


def floats(data):
    return struct.unpack(f"{len(data) // 4}f", data)


def rows_of(values, count):
    vocab = len(values) // count
    if vocab * count != len(values):
        sys.exit(f"{len(values)} logits are not whole rows for {count} tokens")
    return [values[i * vocab:(i + 1) * vocab] for i in range(count)]


def weft_logits(args, file, ids):
    command = [args.logits, "cpu:1", str(len(ids) + 1)]  # a context with room for the one greedy token
    out = run(command, f"logits 1 {len(ids)} {' '.join(map(str, ids))} {file}\n".encode())
    head, _, rest = out.partition(b"\n")
    if not head.startswith(b"ok "):
        sys.exit(f"{os.path.basename(args.logits)}: {head.decode(errors='replace')}")
    return rows_of(floats(rest[:4 * int(head[3:])]), len(ids))


def peer_logits(args, file, ids):
    return rows_of(floats(run([args.peer, file, *map(str, ids)])), len(ids))


def log_softmax(row):
    most = max(row)
    total = math.log(math.fsum(math.exp(x - most) for x in row)) + most
    return [x - total for x in row]


def divergence(base, other):
    """KL of one row. Both sums of probabilities are 1, so the sum of p log(p / q) is that of p (exp(d) - 1 - d) with
    d = log(q / p), whose terms are not negative and do not cancel."""
    pairs = zip(log_softmax(base), log_softmax(other))
    return math.fsum(math.exp(p) * (math.expm1(q - p) - (q - p)) for p, q in pairs)


def compare(base, other):
    """Compares rows of logits with those of `base`."""
    if len(base) != len(other) or len(base[0]) != len(other[0]):
        sys.exit(f"{len(base)} x {len(base[0])} logits, and {len(other)} x {len(other[0])}")
    kl = [divergence(b, o) for b, o in zip(base, other)]
    largest = max(abs(x) for row in base for x in row)
    difference = max(abs(x - y) for b, o in zip(base, other) for x, y in zip(b, o))
    same = sum(b.index(max(b)) == o.index(max(o)) for b, o in zip(base, other))
    first = next((i for i, x in enumerate(kl) if x > BOUND), len(kl))
    return {"mean_kl": statistics.fmean(kl), "max_kl": max(kl), "same_top_token": same / len(kl),
            "logit_difference": difference / largest, "tokens_before_bound": first}


def evaluate(args, name, change, scratch):
    """Returns the row of a checkpoint, with changed keys of config.json."""
    # llama.cpp requires certain tokens of a Phi-3 by that name, and the folder names the model.
    folder, file = os.path.join(scratch, "checkpoint"), os.path.join(scratch, "checkpoint.gguf")
    shutil.copytree(os.path.join(MODELS, name), folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**config, **change}, f)
    with open(os.path.join(folder, "reference.json"), encoding="utf-8") as f:
        reference = json.load(f)
    run([args.weft, "convert", folder, file, "--type", "f32", "--overwrite"])
    shutil.rmtree(folder)
    ids = reference["prompt"] + reference["greedy"]
    ours, peer = weft_logits(args, file, ids), peer_logits(args, file, ids)
    return {"checkpoint": name, "changed": change, "tokens": len(ids), "vocabulary": len(peer[0]), **compare(peer, ours)}


def agrees(row):
    return row["mean_kl"] <= BOUND  # False for NaN


def is_expected(row):
    return agrees(row) != (row["checkpoint"] in IGNORED and not row["changed"])


def text_row(row):
    name = row["checkpoint"] + (", wide window" if row["changed"] else "")
    return (f"| {name} | {row['mean_kl']:.1e} | {row['max_kl']:.1e} | {100 * row['same_top_token']:.1f}%"
            f" | {row['logit_difference']:.1e} | {row['tokens_before_bound']} of {row['tokens']} |")


def write(args, rows):
    version, commit = re.match(r"weft (\S+) \(commit (\w+)", run([args.weft, "--version"]).decode()).groups()
    command = ["bench/against_llama.py"] + [re.sub(r"^/\S*/", "", a) for a in sys.argv[1:]]
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump({"what": "logits against llama.cpp",
                   "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                   "command": shlex.join(command), "weft": {"version": version, "commit": commit},
                   "peer": {"name": "llama.cpp", "version": args.peer_version}, "bound": BOUND, "results": rows}, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME", help="checkpoints (default: all)")
    p.add_argument("--weft", default="build-test/weft")
    p.add_argument("--logits", default="build-test/tests/tools/logits")
    p.add_argument("--peer", required=True)
    p.add_argument("--peer-version", required=True)
    p.add_argument("--json", help="write the result there")
    args = p.parse_args()
    rows = []
    print("| checkpoint | mean KL | largest KL | same top token | logits | tokens until the bound |\n|---|---|---|---|---|---|")
    for name in args.names or sorted(os.listdir(MODELS)):
        for change in [{}] + ([WIDER] if name in IGNORED else []):
            with tempfile.TemporaryDirectory() as scratch:
                rows.append(evaluate(args, name, change, scratch))
            print(text_row(rows[-1]), flush=True)
    if args.json:
        write(args, rows)
    unexpected = [r["checkpoint"] for r in rows if not is_expected(r)]
    if unexpected:
        sys.exit(f"unexpected: {', '.join(unexpected)}")


if __name__ == "__main__":
    main()
