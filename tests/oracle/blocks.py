#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the values of random blocks of every type in include/weft_quant.def with the package gguf: writes
models of such blocks, has the program convert them to f32, and compares all bits. Exits 77, with a message, without
the package (pip install --no-deps gguf; it needs numpy and pyyaml).
"""
import argparse
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time

try:
    import gguf
    import numpy as np
except ImportError as e:
    print("skipped: python has no package %s" % e.name)
    sys.exit(77)

WIDTH, VOCAB = 256, 96
MATRICES = {"token_embd": VOCAB, "output": VOCAB, "blk.0.attn_q": WIDTH, "blk.0.attn_k": WIDTH, "blk.0.attn_v": WIDTH,
            "blk.0.attn_output": WIDTH, "blk.0.ffn_gate": WIDTH, "blk.0.ffn_up": WIDTH, "blk.0.ffn_down": WIDTH}


def types():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "include", "weft_quant.def")) as f:
        return [getattr(gguf.GGMLQuantizationType, name) for name in re.findall(r"X\(A, ([A-Z0-9_]+), \w+, \w+, \d+", f.read())]


def blocks(rng, kind, rows):
    """Random bytes; blocks with a value that is not finite become zeros."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows * WIDTH // block, size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        finite = np.isfinite(gguf.quants.dequantize(raw, kind)).all(axis=1)
    raw[~finite] = 0
    return raw.reshape(rows, -1), gguf.quants.dequantize(raw, kind).reshape(rows, WIDTH), finite.mean()


def check(weft, folder, rng, kind):
    path, copy, wanted, shares = folder + "/m.gguf", folder + "/f.gguf", {}, []
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(1)
    w.add_context_length(64)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(WIDTH)
    w.add_head_count(4)
    w.add_layer_norm_rms_eps(1e-5)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        w.add_tensor(name + ".weight", np.ones(WIDTH, dtype=np.float32))
    for name, rows in MATRICES.items():
        raw, wanted[name + ".weight"], share = blocks(rng, kind, rows)
        w.add_tensor(name + ".weight", raw, raw_dtype=kind)
        shares.append(share)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    done = subprocess.run([weft, "convert", path, copy, "--type", "f32", "--overwrite"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found = {t.name: t.data for t in gguf.GGUFReader(copy).tensors}
    row = {"type": kind.name, "values": sum(x.size for x in wanted.values()),
           "random_blocks": round(float(np.mean(shares)), 4),
           "equal": all(np.array_equal(x.view(np.uint32), found[name].view(np.uint32)) for name, x in wanted.items())}
    print("%-7s %s: %d values, %.0f%% of the blocks random" %
          (kind.name, "equal" if row["equal"] else "DIFFERENT", row["values"], 100 * row["random_blocks"]))
    return row


def write(path, weft, seed, rows):
    version = subprocess.run([weft, "--version"], capture_output=True, text=True, check=True).stdout
    version, commit = re.match(r"weft (\S+) \(commit (\w+)", version).groups()
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"what": "values of random blocks against the package gguf",
                   "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                   "command": "tests/oracle/blocks.py build/weft %d" % seed, "seed": seed,
                   "weft": {"version": version, "commit": commit},
                   "peer": {"name": "gguf", "version": importlib.metadata.version("gguf")}, "results": rows}, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("weft", help="the program")
    p.add_argument("seed", nargs="?", type=int, default=time.time_ns() % (1 << 32))
    p.add_argument("--json", help="write the result there")
    args = p.parse_args()
    weft = os.path.abspath(args.weft)
    print("seed", args.seed)
    rng = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        rows = [check(weft, folder, rng, kind) for kind in types()]
    if args.json:
        write(args.json, weft, args.seed, rows)
    sys.exit(not (rows and all(row["equal"] for row in rows)))


main()
