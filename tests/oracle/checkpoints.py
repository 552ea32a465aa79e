#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/checkpoints.py TOOL [--count N] [--seconds S] [--seed SEED] [--judge numpy|transformers]
                                   [--only checkpoints|keys|mutations] [--keep FOLDER]

Writes random checkpoints of every family that Weft loads, as Hugging Face folders, and compares the
results of TOOL (tests/tools/logits.c) with a judge: logits within a tolerance, and greedy tokens.

  checkpoints   random legal configs; also after conversion to GGUF and back to a folder
  keys          one key of config.json changed at a time: the judge's logits, or a refusal that
                names the key
  mutations     one file of a folder damaged (configs, tokenizer, weights, index): logits or one
                sentence, no crash

The judge is an independent NumPy implementation (in this file), or transformers if installed. The
seed is printed; the same seed makes the same checkpoints. Exits 77, with a message, without NumPy.
"""
import argparse
import copy
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.pop(0)  # tokenizers.py beside this file is not the package

try:
    import numpy as np
except ImportError:
    print("skipped: python has no package numpy (tools/fetch_python.sh brings it)")
    sys.exit(77)

TOLERANCE = 5e-5  # relative to the largest logit; measured: 5e-6
GREEDY = 8

# ---- Files ----------------------------------------------------------------------------------------------


def round_to(x, dtype):
    """Rounds to the nearest values of a type, as f32."""
    x = x.astype(np.float32)
    if dtype == "F16":
        return x.astype(np.float16).astype(np.float32)
    if dtype == "BF16":
        bits = x.view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return bits.astype(np.uint32).view(np.float32)
    return x


def encode(x, dtype):
    if dtype == "F16":
        return x.astype("<f2").tobytes()
    if dtype == "BF16":
        return (x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return x.astype("<f4").tobytes()


def write_safetensors(path, tensors):
    """tensors: {name: (array, type)}"""
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, (x, dtype) in tensors.items():
        raw = encode(x, dtype)
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def write_folder(folder, config, tensors, shards=1):
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    if shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        return
    names, where = list(tensors), {}
    for i in range(shards):
        file = "model-%05d-of-%05d.safetensors" % (i + 1, shards)
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        write_safetensors(os.path.join(folder, file), {n: tensors[n] for n in part})
        where.update({n: file for n in part})
    total = sum(x.size * (4 if t == "F32" else 2) for x, t in tensors.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, f)


# ---- Random configs -------------------------------------------------------------------------------------


def random_rope(rng, context, head_dim):
    """Random rope_parameters in the format of transformers 5."""
    rope = {"rope_theta": rng.choice([10000.0, 10000, 500000.0, 1e6, round(rng.uniform(50, 1e5), 3)])}
    kind = rng.choice(["default", "linear", "dynamic", "llama3", "llama3", "yarn", "yarn", "yarn"])
    if kind == "dynamic" and head_dim == 2:  # transformers divides by head_dim - 2
        kind = "linear"
    rope["rope_type"] = kind
    if kind != "default":
        rope["factor"] = rng.choice([2.0, 4.0, 8, 1.0, round(rng.uniform(1, 40), 2)])
    if kind == "llama3":
        low = rng.choice([1.0, 1, round(rng.uniform(0.5, 3), 2)])
        rope.update(low_freq_factor=low, high_freq_factor=rng.choice([4.0, 4, round(low + rng.uniform(0.5, 9), 2)]),
                    original_max_position_embeddings=rng.choice([8192, 64, context, rng.randint(8, 4096)]))
    if kind == "yarn":
        rope["original_max_position_embeddings"] = rng.choice([8, 32, context, 4096, rng.randint(8, 4096)])
        more = {"beta_fast": rng.choice([32, 16.0, round(rng.uniform(4, 64), 2)]),
                "beta_slow": rng.choice([1, 1.0, round(rng.uniform(0.1, 3), 2)]),
                "mscale": rng.choice([1.0, 0.707, round(rng.uniform(0.1, 2), 3)]),
                "mscale_all_dim": rng.choice([1.0, 0.707, 0, round(rng.uniform(0.1, 2), 3)]),
                "truncate": rng.random() < 0.5,
                "attention_factor": rng.choice([None, 1.0, round(rng.uniform(0.5, 2), 3)])}
        for key, value in more.items():
            if rng.random() < 0.5:
                rope[key] = value
    return rope


def random_llama(rng, kind):
    heads = rng.choice([1, 2, 3, 4, 6])
    kv = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    width = heads * rng.choice([4, 8, 10, 16, 24])
    context = rng.choice([48, 64, 100, 128])
    layers = rng.randint(1, 3)
    c = {"model_type": kind, "vocab_size": rng.randint(24, 150), "hidden_size": width,
         "intermediate_size": rng.randint(5, 70), "num_hidden_layers": layers, "num_attention_heads": heads,
         "num_key_value_heads": kv, "hidden_act": rng.choice(["silu", "silu", "swish"]),
         "max_position_embeddings": context, "rms_norm_eps": rng.choice([1e-6, 1e-5, round(rng.uniform(0, 1e-3), 7)])}
    head_dim = width // heads
    if kind == "qwen3" or head_dim % 2 or rng.random() < 0.4:
        head_dim = rng.choice([2, 4, 6, 8, 16, 32])
    if head_dim != width // heads or kind == "qwen3" or rng.random() < 0.5:
        c["head_dim"] = head_dim
    if kv == heads and kind == "llama" and rng.random() < 0.5:
        c["num_key_value_heads"] = None
    rope = random_rope(rng, context, head_dim)
    if rng.random() < 0.5:
        c["rope_parameters"] = rope
    else:  # transformers 4
        c["rope_theta"] = rope.pop("rope_theta")
        plain = rope["rope_type"] == "default"
        if rng.random() < 0.3:
            rope["type"] = rope.pop("rope_type")
        c["rope_scaling"] = None if plain else rope
    if kind == "llama":
        c.update(attention_bias=rng.random() < 0.4, mlp_bias=rng.random() < 0.4)
    if kind == "qwen3":
        c["attention_bias"] = rng.random() < 0.4
    if kind == "mistral":
        c["sliding_window"] = rng.choice([None, rng.randint(1, 12), 4096])
    if kind.startswith("qwen"):
        c["use_sliding_window"] = rng.random() < 0.6
        c["sliding_window"] = rng.choice([None, rng.randint(1, 12), 4096])
        c["max_window_layers"] = rng.randint(0, layers)
        if c["use_sliding_window"] and c["sliding_window"] and rng.random() < 0.5:
            c["layer_types"] = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    return c


def random_gpt2(rng):
    heads = rng.choice([1, 2, 3, 4])
    c = {"model_type": "gpt2", "vocab_size": rng.randint(24, 150), "n_embd": heads * rng.choice([2, 5, 8, 16]),
         "n_layer": rng.randint(1, 3), "n_head": heads, "n_positions": rng.choice([48, 64, 100]),
         "n_inner": rng.choice([None, rng.randint(5, 90)]),
         "activation_function": rng.choice(["gelu_new", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"]),
         "layer_norm_epsilon": rng.choice([1e-5, 1e-6, round(rng.uniform(0, 1e-3), 7)]),
         "scale_attn_weights": rng.random() < 0.7, "scale_attn_by_inverse_layer_idx": rng.random() < 0.3,
         "reorder_and_upcast_attn": rng.random() < 0.3}
    if rng.random() < 0.3:  # aliases that its config class accepts
        c["hidden_size"] = c.pop("n_embd")
        c["num_hidden_layers"] = c.pop("n_layer")
    return c


CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
           "qwen3": "Qwen3ForCausalLM", "gpt2": "GPT2LMHeadModel"}


def random_config(rng, kind):
    c = random_gpt2(rng) if kind == "gpt2" else random_llama(rng, kind)
    c["architectures"] = [CLASSES[kind]]
    c["tie_word_embeddings"] = rng.random() < 0.5
    c.update(bos_token_id=0, eos_token_id=1, pad_token_id=None)
    return c


# ---- Weights --------------------------------------------------------------------------------------------


def sizes(c):
    """The sizes that the judges need, with transformers' defaults."""
    if c["model_type"] == "gpt2":
        width = c.get("n_embd", c.get("hidden_size"))
        heads = c.get("n_head", c.get("num_attention_heads"))
        return dict(layers=c.get("n_layer", c.get("num_hidden_layers")), width=width, heads=heads, kv=heads,
                    head_dim=width // heads, hidden=c.get("n_inner") or 4 * width,
                    context=c.get("n_positions", c.get("max_position_embeddings", 1024)))
    heads = c["num_attention_heads"]
    return dict(layers=c["num_hidden_layers"], width=c["hidden_size"], heads=heads,
                kv=c.get("num_key_value_heads") or heads,
                head_dim=c.get("head_dim") or c["hidden_size"] // heads, hidden=c["intermediate_size"],
                context=c["max_position_embeddings"])


def shapes(c):
    s, kind, V = sizes(c), c["model_type"], c["vocab_size"]
    C, D, H, K, M = s["width"], s["head_dim"], s["heads"], s["kv"], s["hidden"]
    out = {}
    if kind == "gpt2":
        out["transformer.wte.weight"] = (V, C)
        out["transformer.wpe.weight"] = (s["context"], C)
        for i in range(s["layers"]):
            p = "transformer.h.%d." % i
            for name, shape in (("ln_1", (C,)), ("attn.c_attn", (C, 3 * C)), ("attn.c_proj", (C, C)), ("ln_2", (C,)),
                                ("mlp.c_fc", (C, M)), ("mlp.c_proj", (M, C))):
                out[p + name + ".weight"] = shape
                out[p + name + ".bias"] = shape[-1:]
        out["transformer.ln_f.weight"] = out["transformer.ln_f.bias"] = (C,)
    else:
        attention, mlp = bool(c.get("attention_bias")), bool(c.get("mlp_bias")) and kind == "llama"
        qkv = kind == "qwen2" or attention and kind in ("llama", "qwen3")
        out["model.embed_tokens.weight"] = (V, C)
        for i in range(s["layers"]):
            p = "model.layers.%d." % i
            for name, shape, bias in (("self_attn.q_proj", (H * D, C), qkv), ("self_attn.k_proj", (K * D, C), qkv),
                                      ("self_attn.v_proj", (K * D, C), qkv),
                                      ("self_attn.o_proj", (C, H * D), qkv and kind != "qwen2"),
                                      ("mlp.gate_proj", (M, C), mlp), ("mlp.up_proj", (M, C), mlp),
                                      ("mlp.down_proj", (C, M), mlp)):
                out[p + name + ".weight"] = shape
                if bias:
                    out[p + name + ".bias"] = shape[:1]
            for name in ["input_layernorm", "post_attention_layernorm"]:
                out[p + name + ".weight"] = (C,)
            if kind == "qwen3":
                out[p + "self_attn.q_norm.weight"] = out[p + "self_attn.k_norm.weight"] = (D,)
        out["model.norm.weight"] = (C,)
    out["lm_head.weight"] = (V, C)
    return out


def embedding_name(c):
    return "transformer.wte.weight" if c["model_type"] == "gpt2" else "model.embed_tokens.weight"


def random_tensors(rng, c):
    """{name: (array, type)}. With tied weights the head is missing, equal, different, or alone."""
    draw = np.random.default_rng(rng.getrandbits(64))
    dtype = rng.choice(["F32", "F16", "BF16"])
    vectors = rng.choice([dtype, dtype, "F32"])
    tensors = {}
    for name, shape in shapes(c).items():
        x = draw.standard_normal(shape) * (0.3 if len(shape) == 1 else 1 / math.sqrt(shape[-1]))
        if len(shape) == 1 and name.endswith("weight"):
            x = x + 1
        if name in (embedding_name(c), "lm_head.weight", "transformer.wpe.weight"):
            x = draw.standard_normal(shape) * 0.7
        t = dtype if len(shape) == 2 else vectors
        tensors[name] = (round_to(x, t), t)
    if c["tie_word_embeddings"]:
        way = rng.choice(["missing", "missing", "equal", "different", "alone"])
        table = tensors[embedding_name(c)]
        if way == "missing":
            del tensors["lm_head.weight"]
        elif way == "equal":
            tensors["lm_head.weight"] = table
        elif way == "alone":
            tensors["lm_head.weight"] = table
            del tensors[embedding_name(c)]
    return tensors


# ---- The NumPy judge ------------------------------------------------------------------------------------


def rope_dict(c):
    rope = dict(c.get("rope_scaling") or c.get("rope_parameters") or {})
    rope.setdefault("rope_theta", c.get("rope_theta", 10000.0))
    rope.setdefault("rope_type", rope.get("type", "default"))
    if c.get("original_max_position_embeddings") is not None:
        rope["original_max_position_embeddings"] = c["original_max_position_embeddings"]
    rope.setdefault("original_max_position_embeddings", c["max_position_embeddings"])
    return rope


def yarn_ramp(rope, dim, base):
    fast, slow = rope.get("beta_fast") or 32, rope.get("beta_slow") or 1

    def dimension(turns):
        return dim * math.log(rope["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = dimension(fast), dimension(slow)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    return np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)


def frequencies(c):
    """Returns inverse frequencies, and the factor of cos and sin."""
    rope, dim, base = rope_dict(c), sizes(c)["head_dim"], 0.0
    base, kind, factor = float(rope["rope_theta"]), rope["rope_type"], rope.get("factor")
    inv = base ** -(np.arange(0, dim, 2) / dim)
    if kind == "linear":
        return inv / factor, 1.0
    if kind == "llama3":
        turns = rope["original_max_position_embeddings"] * inv / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        share = np.clip((turns - low) / (high - low), 0, 1)
        return inv * ((1 - share) / factor + share), 1.0
    if kind == "yarn":
        if factor is None:
            factor = c["max_position_embeddings"] / rope["original_max_position_embeddings"]

        def magnitude(mscale):
            return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0

        scale = rope.get("attention_factor")
        if scale is None:
            scale = magnitude(1)
            if rope.get("mscale") and rope.get("mscale_all_dim"):
                scale = magnitude(rope["mscale"]) / magnitude(rope["mscale_all_dim"])
        ramp = yarn_ramp(rope, dim, base)
        return inv * (ramp / factor + 1 - ramp), scale
    return inv, 1.0


def rotate(x, c):
    """x [T, H, D]"""
    inv, scale = frequencies(c)
    angle = np.arange(len(x))[:, None] * inv.astype(np.float32).astype(np.float64)
    cos, sin = np.cos(angle)[:, None] * scale, np.sin(angle)[:, None] * scale
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def windows(c):
    """Returns the window of every layer; None: all tokens."""
    kind, layers = c["model_type"], sizes(c)["layers"]
    if kind == "mistral":
        return [c.get("sliding_window", 4096)] * layers
    if kind in ("qwen2", "qwen3") and c.get("use_sliding_window"):
        window = c.get("sliding_window", 4096)
        if c.get("layer_types"):
            return [window if t == "sliding_attention" else None for t in c["layer_types"]]
        return [window if i >= c.get("max_window_layers", 28) else None for i in range(layers)]
    return [None] * layers


def attend(q, k, v, scale, window):
    """q [T, H, D], k, v [T, K, D] -> [T, H * D]"""
    T, H, _ = q.shape
    k, v = (np.repeat(x, H // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) * scale
    back = np.arange(T)[:, None] - np.arange(T)[None]
    hidden = (back < 0) | (back >= (window or T + 1))
    scores = np.where(hidden, -np.inf, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("hts,shd->thd", p, v).reshape(T, -1)


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


class NumpyJudge:
    name = "numpy"

    def open(self, folder, config, tensors):
        self.c = config
        self.w = {n: x.astype(np.float64) for n, (x, _) in tensors.items()}
        table, head = self.w.get(embedding_name(config)), self.w.get("lm_head.weight")
        self.table = table if table is not None else head
        tied = config.get("tie_word_embeddings", config["model_type"] == "gpt2")
        self.head = head if head is not None else table  # a different head overrides the config
        assert tied or (head is not None and table is not None)

    def linear(self, x, name, transposed=False):
        w = self.w[name + ".weight"]
        bias = self.w.get(name + ".bias")
        y = x @ (w if transposed else w.T)
        return y if bias is None else y + bias

    def gpt2(self, ids):
        c, s = self.c, sizes(self.c)
        eps = c.get("layer_norm_epsilon", 1e-5)
        x = self.table[ids] + self.w["transformer.wpe.weight"][:len(ids)]
        for i in range(s["layers"]):
            p = "transformer.h.%d." % i
            h = layer_norm(x, self.w[p + "ln_1.weight"], self.w[p + "ln_1.bias"], eps)
            q, k, v = (y.reshape(len(ids), s["heads"], -1)
                       for y in np.split(self.linear(h, p + "attn.c_attn", True), 3, axis=-1))
            scale = s["head_dim"] ** -0.5 if c.get("scale_attn_weights", True) else 1.0
            if c.get("scale_attn_by_inverse_layer_idx"):
                scale /= i + 1
            x = x + self.linear(attend(q, k, v, scale, None), p + "attn.c_proj", True)
            h = self.linear(layer_norm(x, self.w[p + "ln_2.weight"], self.w[p + "ln_2.bias"], eps), p + "mlp.c_fc", True)
            h = 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)))
            x = x + self.linear(h, p + "mlp.c_proj", True)
        return layer_norm(x, self.w["transformer.ln_f.weight"], self.w["transformer.ln_f.bias"], eps)

    def llama(self, ids):
        c, s = self.c, sizes(self.c)
        eps, T = c.get("rms_norm_eps", 1e-6), len(ids)
        x = self.table[ids]
        for i, window in enumerate(windows(c)):
            p = "model.layers.%d." % i
            h = rms_norm(x, self.w[p + "input_layernorm.weight"], eps)
            q, k, v = (self.linear(h, p + "self_attn.%s_proj" % n).reshape(T, -1, s["head_dim"]) for n in "qkv")
            if c["model_type"] == "qwen3":
                q = rms_norm(q, self.w[p + "self_attn.q_norm.weight"], eps)
                k = rms_norm(k, self.w[p + "self_attn.k_norm.weight"], eps)
            h = attend(rotate(q, c), rotate(k, c), v, s["head_dim"] ** -0.5, window)
            x = x + self.linear(h, p + "self_attn.o_proj")
            h = rms_norm(x, self.w[p + "post_attention_layernorm.weight"], eps)
            gate = self.linear(h, p + "mlp.gate_proj")
            h = gate / (1 + np.exp(-gate)) * self.linear(h, p + "mlp.up_proj")
            x = x + self.linear(h, p + "mlp.down_proj")
        return rms_norm(x, self.w["model.norm.weight"], eps)

    def logits(self, ids):
        x = self.gpt2(ids) if self.c["model_type"] == "gpt2" else self.llama(ids)
        return x @ self.head.T


class TransformersJudge:
    name = "transformers"

    def __init__(self):
        import torch
        import transformers
        self.torch, self.transformers = torch, transformers
        transformers.logging.set_verbosity(transformers.logging.CRITICAL)
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(1)
        print("transformers", transformers.__version__, "torch", torch.__version__)

    def open(self, folder, config, tensors):
        self.model = self.transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=self.torch.float32, attn_implementation="eager").eval()
        self.model.config.return_dict = True

    def logits(self, ids):
        with self.torch.no_grad():
            return self.model(self.torch.tensor([ids])).logits[0].double().numpy()


# ---- Weft -----------------------------------------------------------------------------------------------


class Tool:
    def __init__(self, path, memory=None):
        limit = None
        if memory:
            import resource
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        self.errors = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                  preexec_fn=limit)

    def ask(self, line):
        """Returns (None, count), or (message, 0)."""
        self.errors.seek(0)
        self.errors.truncate()
        try:
            self.p.stdin.write(line.encode() + b"\n")
            self.p.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.p.stdout.readline().decode(errors="replace")
        if not answer.endswith("\n"):
            raise RuntimeError("the tool ended with %s at: %s" % (self.p.wait(), line))
        word, _, rest = answer[:-1].partition(" ")
        return (None, int(rest)) if word == "ok" else (rest, 0)

    def logits(self, folder, ids, greedy=GREEDY):
        """Returns (message, logits, greedy tokens)."""
        message, count = self.ask("logits %d %d %s %s" % (greedy, len(ids), " ".join(map(str, ids)), folder))
        if message is not None:
            return message, None, None
        x = np.frombuffer(self.p.stdout.read(4 * count), np.float32).reshape(len(ids), -1)
        return None, x, [int(i) for i in self.p.stdout.readline().split()[1:]]

    def convert(self, source, to):
        return self.ask("convert %s\t%s" % (source, to))[0]

    def warnings(self):
        self.errors.seek(0)
        return self.errors.read()

    def close(self):
        self.p.stdin.close()
        self.p.stdout.close()
        if self.p.wait() != 0:
            raise RuntimeError("the tool ended with %d" % self.p.returncode)


# ---- Comparing ------------------------------------------------------------------------------------------


class Failed(Exception):
    pass


def compare(what, judge, ids, logits, greedy):
    """Raises Failed unless logits agree and each greedy token is among the judge's largest."""
    want = judge.logits(list(ids) + greedy)
    scale = np.abs(want).max()
    error = np.abs(logits - want[:len(ids)]).max() / scale
    if not error <= TOLERANCE:
        raise Failed("%s: logits differ from those of %s by %.1e of the largest" % (what, judge.name, error))
    for i, token in enumerate(greedy):
        row = want[len(ids) - 1 + i]
        if not row[token] >= row.max() - 2 * TOLERANCE * scale:
            raise Failed("%s: greedy token %d is %d, and %d by %s" % (what, i, token, row.argmax(), judge.name))
    return error


def prompt(rng, c):
    return [rng.randrange(c["vocab_size"]) for _ in range(rng.randint(1, min(24, sizes(c)["context"] - GREEDY)))]


def check_round_trip(tool, folder, judge, ids, first):
    """The GGUF file is within the tolerance; the folder converted from it is bitwise equal."""
    gguf, back = folder + ".gguf", folder + "-back"
    message = tool.convert(folder, gguf)
    if message:
        raise Failed("conversion to GGUF: " + message)
    message, logits, greedy = tool.logits(gguf, ids)
    if message:
        raise Failed("GGUF: " + message)
    compare("GGUF", judge, ids, logits, greedy)
    message = tool.convert(gguf, back)
    if message:
        raise Failed("conversion back to a folder: " + message)
    message, logits, greedy = tool.logits(back, ids)
    if message:
        raise Failed("folder from GGUF: " + message)
    if not np.array_equal(logits, first):
        raise Failed("folder from GGUF: logits have other bits than those of the first folder (%.1e)" %
                     np.abs(logits - first).max())
    again = folder + "-again"
    message = tool.convert(folder, again)
    if message:
        raise Failed("conversion of the folder to a folder: " + message)
    message, logits, greedy = tool.logits(again, ids)
    if message or not np.array_equal(logits, first):
        raise Failed("folder to folder: " + (message or "other bits"))
    return back


def check_checkpoint(rng, tool, judges, folder, kind):
    c = random_config(rng, kind)
    tensors = random_tensors(rng, c)
    stored = tensors
    if rng.random() < 0.2:  # saved without the head's class: names lack the prefix
        stored = {n.replace("transformer.", "").replace("model.", "", 1): t for n, t in tensors.items()}
    if kind == "gpt2" and rng.random() < 0.3:  # attention masks of old checkpoints
        n = sizes(c)["context"]
        stored = dict(stored, **{"h.0.attn.bias": (np.tril(np.ones((1, 1, n, n))), "F32")})
    write_folder(folder, c, stored, rng.choice([1, 1, 2, 3]))
    ids = prompt(rng, c)
    message, logits, greedy = tool.logits(folder, ids)
    if message:
        raise Failed("refused: " + message)
    worst = 0
    for judge in judges:
        judge.open(folder, c, tensors)
        worst = max(worst, compare("folder", judge, ids, logits, greedy))
    back = check_round_trip(tool, folder, judges[-1], ids, logits)
    if judges[-1].name == "transformers":  # it must read the folder that Weft wrote
        judges[-1].open(back, None, None)
        compare("folder from GGUF", judges[-1], ids, logits, greedy)
    return worst


# ---- Single keys ----------------------------------------------------------------------------------------

REFUSED = "refused"  # by name
COMMON = {
    "vocab_size": [REFUSED], "tie_word_embeddings": [True, False], "bos_token_id": [3], "eos_token_id": [[2, 3]],
    "pad_token_id": [5], "architectures": [["X"]], "transformers_version": ["4.0.0"], "dtype": ["bfloat16"],
    "torch_dtype": ["float16"], "use_cache": [False], "initializer_range": [0.5], "output_hidden_states": [True],
    "output_attentions": [False], "return_dict": [False], "chunk_size_feed_forward": [3], "is_encoder_decoder": [REFUSED, True],
    "id2label": [{"0": "a"}], "label2id": [{"a": 0}], "problem_type": ["regression"], "_name_or_path": ["x"],
    "quantization_config": [REFUSED, {"quant_method": "gptq"}], "per_layer_config": [REFUSED, {"0": {"head_dim": 2}}],
    "a_key_nobody_knows": [1],
}
ROTARY = {
    "hidden_size": [REFUSED], "intermediate_size": [REFUSED], "num_hidden_layers": [REFUSED],
    "num_attention_heads": [REFUSED], "num_key_value_heads": [REFUSED], "head_dim": [REFUSED],
    "hidden_act": [REFUSED, "gelu", "relu", "swish"], "max_position_embeddings": [70], "rms_norm_eps": [0.1],
    "rope_theta": [77.0], "attention_dropout": [0.5], "partial_rotary_factor": [REFUSED, 0.5, 1.0],
    "original_max_position_embeddings": [40],
    "rope_scaling": [{"rope_type": "linear", "factor": 3.0}, {"type": "linear", "factor": 3.0}],
    "rope_parameters": [{"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0},
                        {"rope_type": "longrope", "factor": 2.0, "short_factor": [], "long_factor": []}, REFUSED],
}
FIELDS = {
    "llama": dict(COMMON, **ROTARY, pretraining_tp=[2], attention_bias=[REFUSED], mlp_bias=[REFUSED], sliding_window=[3],
                  layer_types=[REFUSED, ["full_attention", "full_attention"], ["full_attention", "sliding_attention"]]),
    "mistral": dict(COMMON, **ROTARY, sliding_window=[3, None], use_sliding_window=[False], attention_bias=[True],
                    layer_types=[REFUSED, ["full_attention", "sliding_attention"]]),
    "qwen2": dict(COMMON, **ROTARY, use_sliding_window=[True, False], sliding_window=[3, None], max_window_layers=[0, 1],
                  layer_types=[REFUSED, ["sliding_attention", "full_attention"]]),
    "qwen3": dict(COMMON, **ROTARY, use_sliding_window=[True, False], sliding_window=[3, None], max_window_layers=[0, 1],
                  attention_bias=[REFUSED], layer_types=[REFUSED, ["sliding_attention", "full_attention"]]),
    "gpt2": dict(COMMON, n_positions=[REFUSED], n_embd=[REFUSED], n_layer=[REFUSED], n_head=[2], n_inner=[REFUSED],
                 activation_function=[REFUSED, "gelu_fast", "gelu", "relu"], resid_pdrop=[0.5], embd_pdrop=[0.5],
                 attn_pdrop=[0.5], layer_norm_epsilon=[0.1], summary_type=["last"], summary_use_proj=[False],
                 summary_activation=["tanh"], summary_proj_to_labels=[False], summary_first_dropout=[0.5],
                 scale_attn_weights=[False], scale_attn_by_inverse_layer_idx=[True], reorder_and_upcast_attn=[True],
                 add_cross_attention=[REFUSED, True], n_ctx=[7]),
}
YARN = {"factor": [5.0, None], "original_max_position_embeddings": [64], "attention_factor": [1.5, None], "beta_fast": [5, 0],
        "beta_slow": [0.2, 0], "mscale": [0.5], "mscale_all_dim": [0.5], "truncate": [False, None], "rope_theta": [321.0],
        "partial_rotary_factor": [REFUSED, 0.5], "rope_type": ["default", "dynamic", "linear", REFUSED], "nobody_knows": [1]}
LLAMA3 = {"factor": [5.0], "original_max_position_embeddings": [64], "low_freq_factor": [0.5], "high_freq_factor": [9.0],
          "rope_theta": [321.0], "mscale": [2.0]}
# Keys that do not affect logits; a change of any other key must change them or be refused.
SILENT = set("""bos_token_id eos_token_id pad_token_id architectures transformers_version dtype torch_dtype use_cache
    initializer_range output_hidden_states output_attentions return_dict chunk_size_feed_forward id2label label2id
    problem_type _name_or_path a_key_nobody_knows max_position_embeddings attention_dropout pretraining_tp resid_pdrop
    embd_pdrop attn_pdrop summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    reorder_and_upcast_attn n_ctx rope_parameters.nobody_knows""".split())
SILENT_IN = {("llama", "sliding_window"), ("mistral", "use_sliding_window"), ("mistral", "attention_bias"),
             ("llama3", "rope_parameters.mscale")}


def base_config(kind):
    """A checkpoint on which every key of the family has an effect."""
    if kind == "gpt2":
        return {"model_type": "gpt2", "vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 48,
                "n_inner": 50, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                "tie_word_embeddings": False}
    c = {"model_type": kind, "vocab_size": 40, "hidden_size": 24, "intermediate_size": 30, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
         "rope_parameters": {"rope_theta": 100.0, "rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
                             "mscale_all_dim": 0.3, "original_max_position_embeddings": 4096}}
    if kind == "mistral":
        c["sliding_window"] = 9
    if kind.startswith("qwen"):
        c.update(use_sliding_window=True, sliding_window=9, max_window_layers=1)
    return c


def changes(kind):
    """(base config, dotted key, changed config, may be refused)"""
    base = base_config(kind)
    for key, values in FIELDS[kind].items():
        old = base.get(key)
        more = []
        if values == [REFUSED]:
            more = [not old] if old is None or isinstance(old, bool) else [2 * old]
        for value in [v for v in values if v != REFUSED] + more:
            c = json.loads(json.dumps(base))
            if key in ("rope_theta", "original_max_position_embeddings"):
                c["rope_parameters"].pop(key)
            if key == "rope_scaling":
                c["rope_theta"] = c.pop("rope_parameters")["rope_theta"]
            c[key] = value
            yield base, key, c, REFUSED in values
    if kind == "gpt2":
        return
    llama3 = {"rope_theta": 100.0, "rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    for table, rope in ((YARN, base["rope_parameters"]), (LLAMA3, llama3)):
        for key, values in table.items():
            for value in [v for v in values if v != REFUSED]:
                first = dict(base, rope_parameters=rope)
                yield (first, "rope_parameters." + key, dict(base, rope_parameters=dict(rope, **{key: value})),
                       REFUSED in values)


def named(key, message):
    """Whether a refusal names the key, or the tensors whose sizes it determines."""
    return key.split(".")[-1] in message or any(
        text in message for text in ("must be [", "is missing", "not a weight", "do not divide", "too few for"))


def check_keys(rng, tool, judges, folder, kind):
    """Returns the number of changes."""
    drawn = random_tensors(rng, base_config(kind))
    tensors = {name: (x, "F32") for name, (x, _) in drawn.items()}
    ids = [rng.randrange(40) for _ in range(24)]
    bases, effect, count = {}, {}, 0

    def run(c, own):
        own = os.path.join(folder, own)
        write_folder(own, c, tensors)
        return (own,) + tool.logits(own, ids)

    for base, key, c, refusable in changes(kind):
        count += 1
        text = json.dumps(base)
        if text not in bases:
            bases[text] = run(base, "base%d" % count)[2]
        own, message, logits, greedy = run(c, "%d" % count)
        value = c["rope_parameters"][key[16:]] if key.startswith("rope_parameters.") else c[key]
        where = "%s, %s = %s" % (kind, key, json.dumps(value))
        rope = c.get("rope_parameters", {}).get("rope_type") if key.startswith("rope_parameters.") else None
        silent = key in SILENT or (kind, key) in SILENT_IN or (rope, key) in SILENT_IN
        if message:
            if not refusable or not named(key, message):
                raise Failed("%s: refused: %s" % (where, message))
            effect[key] = True
            continue
        for judge in judges:
            try:
                judge.open(own, c, tensors)
                compare(where, judge, ids, logits, greedy)
            except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as e:
                raise Failed("%s: loaded, but %s refuses it: %s" % (where, judge.name, e))
        changed = not np.array_equal(logits, bases[text])
        if silent and changed:
            raise Failed("%s: changes the logits" % where)
        effect[key] = effect.get(key, False) or changed or silent
        if key in ("a_key_nobody_knows", "rope_parameters.nobody_knows") and "nobody_knows" not in tool.warnings():
            raise Failed("%s: ignored without a warning" % where)
    for key, seen in effect.items():
        if not seen and key not in ("quantization_config", "tie_word_embeddings"):
            raise Failed("%s: no value of %s changes anything" % (kind, key))
    return count


def check_fields():
    """With transformers installed: checks that every key of its config classes is tried."""
    import transformers
    for kind in FIELDS:
        known = set(transformers.AutoConfig.for_model(kind).to_dict())
        missing = known - set(FIELDS[kind]) - {"model_type"}
        if missing:
            raise Failed("keys of %s that are not tried: %s" % (kind, ", ".join(sorted(missing))))


# ---- Mutations ------------------------------------------------------------------------------------------

HOSTILE = [None, True, False, 0, -1, 1, 2, 3, 7, 2 ** 31 - 1, 2 ** 31, 2 ** 53, 2 ** 63, -2 ** 63, 2 ** 64, 1e308, -0.0, 1e-320,
           0.5, "", "x", "\x1b[2J", "\u0000", "a" * 5000, [], {}, [[]] * 3, {"a": None}, [1, 2, 3]]


def mutate_json(rng, node):
    """Changes, removes or adds one value somewhere in the tree."""
    places = []

    def walk(x):
        if isinstance(x, (dict, list)) and x:
            for key in (list(x) if isinstance(x, dict) else range(len(x))):
                places.append((x, key))
                walk(x[key])

    walk(node)
    if not places:
        return
    where, key = rng.choice(places)
    way = rng.randrange(5)
    if way == 0:
        del where[key]
    elif way == 1 and isinstance(where, dict):
        where[rng.choice(["", "x", "\x1b", key + "x", "__metadata__", "rope_scaling"])] = copy.deepcopy(where[key])
    elif way == 2 and isinstance(where[key], (int, float)) and not isinstance(where[key], bool):
        where[key] += rng.choice([1, -1, 8, -8, 1e9, 0.5])
    else:
        where[key] = copy.deepcopy(rng.choice(HOSTILE))  # a shared list could come to hold itself


def mutate_bytes(rng, raw):
    raw = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(raw)) if raw else 0
        way = rng.randrange(4)
        if way == 0 and raw:
            raw[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            del raw[at:at + rng.choice([1, 2, 100])]
        elif way == 2:
            raw[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 2, 9])))
        elif raw:
            del raw[at:]
    return bytes(raw)


def mutate(rng, folder):
    """Damages one file."""
    files = sorted(f for f in os.listdir(folder) if not f.endswith(".f32"))
    path = os.path.join(folder, rng.choice(files))
    with open(path, "rb") as f:
        raw = f.read()
    if path.endswith(".json") and rng.random() < 0.8:
        node = json.loads(raw)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutate_json(rng, node)
        raw = json.dumps(node).encode()
    elif path.endswith(".safetensors") and rng.random() < 0.8:
        n = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:8 + n])
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutate_json(rng, header)
        text = json.dumps(header).encode()
        length = rng.choice([len(text)] * 6 + [len(text) - 1, len(text) + 8, 2 ** 63, 2 ** 40, 0])
        raw = struct.pack("<Q", length) + text + raw[8 + n:]
    else:
        raw = mutate_bytes(rng, raw)
    with open(path, "wb") as f:
        f.write(raw)
    return os.path.basename(path)


def check_mutation(rng, tool, folder, source, ids):
    shutil.copytree(source, folder)
    file = mutate(rng, folder)
    message, logits, _ = tool.logits(folder, ids, 2)
    if message is None:
        return True
    if not (0 < len(message) < 1000 and message.isprintable()):
        raise Failed("%s damaged: the message is %r" % (file, message))
    return False


# ---- All of it ------------------------------------------------------------------------------------------


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("tool")
    p.add_argument("--count", type=int, default=0)
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    p.add_argument("--judge", choices=["numpy", "transformers", "both"], default="numpy")
    p.add_argument("--only", choices=["checkpoints", "keys", "mutations"])
    p.add_argument("--keep")
    return p.parse_args()


def rounds(args, share):
    """Yields 0, 1, ... until the requested count or time."""
    end, i = time.time() + args.seconds * share, 0
    while i < args.count or time.time() < end:
        yield i
        i += 1


def main():
    args = parse()
    root = tempfile.mkdtemp()
    kinds = list(CLASSES)
    judges = ([NumpyJudge()] if args.judge != "transformers" else []) + (
        [TransformersJudge()] if args.judge != "numpy" else [])
    what = {"checkpoints": 0, "keys": 0, "mutations": 0}
    print("seed %d" % args.seed, flush=True)
    tool = Tool(args.tool)
    failures, worst, fine, folder = [], 0, 0, root

    def attempt(name, check, *more):
        """Runs one check with its own random stream, so that it can be repeated alone."""
        nonlocal folder
        rng = random.Random("%d %s %d" % (args.seed, name, what[name]))
        folder = os.path.join(root, "%s-%d" % (name, what[name]))
        what[name] += 1
        try:
            return check(rng, *more)
        except Failed as e:
            failures.append("%s %d: %s" % (name, what[name] - 1, e))
            print(failures[-1], flush=True)
            if args.keep:
                shutil.copytree(folder, os.path.join(args.keep, os.path.basename(folder)), dirs_exist_ok=True)
        finally:
            if what[name] > 1 or name != "mutations":
                for f in os.listdir(root):
                    if f.startswith("%s-%d" % (name, what[name] - 1)):
                        path = os.path.join(root, f)
                        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        return None

    try:
        if args.only in (None, "checkpoints"):
            for i in rounds(args, 0.6):
                worst = max(worst, attempt("checkpoints", lambda rng: check_checkpoint(
                    rng, tool, judges, folder, kinds[i % len(kinds)])) or 0)
        if args.only in (None, "keys"):
            if args.judge != "numpy":
                check_fields()
            keys = sum(attempt("keys", lambda rng: check_keys(rng, tool, judges, folder, kind)) or 0 for kind in kinds)
            print("%d changes of single keys" % keys)
        if args.only in (None, "mutations"):
            sources = []
            for i, kind in enumerate(kinds):
                rng = random.Random("%d source %d" % (args.seed, i))
                c = random_config(rng, kind)
                sources.append((os.path.join(root, "source-%d" % i), c))
                write_folder(sources[i][0], c, random_tensors(rng, c), 1 + i % 2)
            for name in ("llama-bias", "qwen2"):  # with a tokenizer
                sources.append((os.path.join("tests/fixtures/models", name), None))
            for i in rounds(args, 0.25):
                source, c = sources[i % len(sources)]
                fine += bool(attempt("mutations", lambda rng: check_mutation(rng, tool, folder, source, [0] * 3)))
        tool.close()
    except RuntimeError as e:
        failures.append("%s; files: %s" % (e, folder))
        print(failures[-1])
        root = None
    print("%d checkpoints, logits within %.1e; %d damaged files, %d of them loaded; %d failures" %
          (what["checkpoints"], worst, what["mutations"], fine, len(failures)))
    if root:
        shutil.rmtree(root)
    if failures:
        print("run again with --seed %d --count %d" % (args.seed, max(what.values())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
