#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/blocks.py WEFT [SEED]

Compares the values of random blocks of every type in include/weft_quant.def with the package gguf: writes
models of such blocks, has WEFT convert them to f32, and compares all bits. Exits 77, with a message, without the
package (pip install --no-deps gguf; it needs numpy).
"""
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
    equal = all(np.array_equal(x.view(np.uint32), found[name].view(np.uint32)) for name, x in wanted.items())
    print("%-7s %s: %d values, %.0f%% of the blocks random" %
          (kind.name, "equal" if equal else "DIFFERENT", sum(x.size for x in wanted.values()), 100 * np.mean(shares)))
    return equal


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % (1 << 32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        results = [check(os.path.abspath(sys.argv[1]), folder, rng, kind) for kind in types()]
    sys.exit(not (results and all(results)))


main()
