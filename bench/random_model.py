#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file of the Llama family with random weights, to measure speed at real sizes.

    bench/random_model.py 3b f16 OUT.gguf [--layers N]

Shapes are those of Llama 3.2 1B and 3B, Llama 3.1 8B and TinyLlama (1.1b). All matrices have one
type. The file has no tokenizer, so only `weft bench` and similar programs read it. Needs NumPy."""
import argparse
import struct

import numpy as np

# layers, width, heads, key heads, hidden, vocabulary, rope base, head shares the embedding
SHAPES = {
    "1b": (16, 2048, 32, 8, 8192, 128256, 500000.0, True),
    "1.1b": (22, 2048, 32, 4, 5632, 32000, 10000.0, False),
    "3b": (28, 3072, 24, 8, 8192, 128256, 500000.0, True),
    "8b": (32, 4096, 32, 8, 14336, 128256, 500000.0, False),
}
# GGUF number, elements and bytes of a block, general.file_type, and bytes at which blocks have f16 values
TYPES = {
    "f32": (0, 1, 4, 0, ()), "f16": (1, 1, 2, 1, ()), "bf16": (30, 1, 2, 32, ()), "q8_0": (8, 32, 34, 7, (0,)),
    "q4_0": (2, 32, 18, 2, (0,)), "q4_1": (3, 32, 20, 3, (0, 2)), "q5_0": (6, 32, 22, 8, (0,)), "q5_1": (7, 32, 24, 9, (0, 2)),
    "q2_K": (10, 256, 84, 10, (80, 82)), "q3_K": (11, 256, 110, 12, (108,)), "q4_K": (12, 256, 144, 15, (0, 2)),
    "q5_K": (13, 256, 176, 17, (0, 2)), "q6_K": (14, 256, 210, 18, (208,)), "iq4_nl": (20, 32, 18, 25, (0,)),
    "iq4_xs": (23, 256, 136, 30, (0,)),
}
ALIGN = 32
PIECE = 1 << 24  # elements of random data, written again and again: real randomness is slow


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def pair(key, value):
    """A key and its value: strings, floats, and integers as u32."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    kind, code = (6, "<f") if isinstance(value, float) else (4, "<I")
    return text(key) + struct.pack("<I", kind) + struct.pack(code, value)


def tensors(shape):
    """Names and shapes, columns first as in GGUF."""
    layers, width, heads, keys, hidden, vocab, _, tied = shape
    kv = width // heads * keys
    yield "token_embd.weight", (width, vocab)
    for i in range(layers):
        for name, rows, columns in (("attn_q", width, width), ("attn_k", kv, width), ("attn_v", kv, width),
                                    ("attn_output", width, width), ("ffn_gate", hidden, width),
                                    ("ffn_up", hidden, width), ("ffn_down", width, hidden)):
            yield f"blk.{i}.{name}.weight", (columns, rows)
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{name}.weight", (width,)
    yield "output_norm.weight", (width,)
    if not tied:
        yield "output.weight", (width, vocab)


def random_bytes(kind, rng):
    """PIECE elements: normal, standard deviation 0.02; or blocks of random integers with small scales."""
    _, block, size, _, scales = TYPES[kind]
    if block > 1:
        blocks = rng.integers(0, 256, (PIECE // block, size), dtype=np.uint8)
        for at in scales:
            blocks[:, at:at + 2] = np.frombuffer(np.float16(1e-4 if block > 32 else 1e-3).tobytes(), dtype=np.uint8)
        return blocks.tobytes()
    x = rng.standard_normal(PIECE, dtype=np.float32) * np.float32(0.02)
    if kind == "f32":
        return x.tobytes()
    if kind == "f16":
        return x.astype(np.float16).tobytes()
    return (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("type", choices=TYPES)
    p.add_argument("out")
    p.add_argument("--layers", type=int, help="fewer or more layers than the shape has")
    args = p.parse_args()
    shape = (args.layers or SHAPES[args.shape][0], *SHAPES[args.shape][1:])
    layers, width, heads, keys, hidden, vocab, base, _ = shape
    values = {"general.architecture": "llama", "general.name": f"random {args.shape}", "general.file_type": TYPES[args.type][3],
              "llama.context_length": 131072, "llama.embedding_length": width, "llama.block_count": layers,
              "llama.feed_forward_length": hidden, "llama.attention.head_count": heads,
              "llama.attention.head_count_kv": keys, "llama.rope.dimension_count": width // heads, "llama.rope.freq_base": base,
              "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": vocab, "tokenizer.ggml.model": "no_vocab"}
    infos, sizes, at = b"", [], 0
    for name, dims in tensors(shape):
        kind = args.type if len(dims) == 2 else "f32"
        number, block, bytes_, _, _ = TYPES[kind]
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", number, at)
        size = int(np.prod(dims)) // block * bytes_
        sizes.append((kind, size))
        at += -(-size // ALIGN) * ALIGN
    head = b"GGUF" + struct.pack("<IQQ", 3, len(sizes), len(values)) + b"".join(pair(k, v) for k, v in values.items()) + infos
    rng = np.random.default_rng(1)
    data = memoryview(random_bytes(args.type, rng))
    ones = np.ones(width, dtype=np.float32).tobytes()
    with open(args.out, "xb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for kind, size in sizes:
            left = size
            while left > 0:
                piece = data[:left] if size != len(ones) or kind != "f32" else memoryview(ones)
                left -= f.write(piece)
            f.write(bytes(-size % ALIGN))


if __name__ == "__main__":
    main()
