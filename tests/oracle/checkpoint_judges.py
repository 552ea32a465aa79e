# SPDX-License-Identifier: MIT
"""What checkpoints.py compares Weft with: the forward pass of every family in NumPy, and transformers."""
import json
import math
import os

import numpy as np

from checkpoint_configs import (FUSED_MLP, FUSED_QKV, HEAD_NORM, INTERLEAVED, LLAMA_NORMS, MINISTRAL_ROPE, NORMS,
                                WHOLE_NORM, embedding_name, rotated_layers, setting, shapes, sizes, text_of, windows)

# ---- RoPE -----------------------------------------------------------------------------------------------


def olmo3_rope(c, sliding):
    """rope_scaling and the top-level theta are of the full layers only."""
    outer = c.get("rope_parameters") or {}
    part = outer.get("sliding_attention" if sliding else "full_attention")
    rope = dict({"rope_type": "default"} if part is None else part)
    if not sliding:
        rope.update(c.get("rope_scaling") or {})
        rope.setdefault("rope_theta", setting(c, "rope_theta"))
    rope.setdefault("rope_theta", 500000.0)
    rope["truncate"] = outer.get("truncate", True)
    return rope


def rope_dict(c, sliding):
    """The rope settings of a layer, with defaults. transformers lets rope_scaling win."""
    kind = c["model_type"]
    if kind == "olmo3":
        rope = olmo3_rope(c, sliding)
    else:
        rope = dict(c.get("rope_scaling") or c.get("rope_parameters") or (MINISTRAL_ROPE if kind == "ministral3" else {}))
        rope.setdefault("rope_theta", setting(c, "rope_theta"))
        rope.setdefault("partial_rotary_factor", setting(c, "partial_rotary_factor"))
    rope.setdefault("rope_type", rope.get("type", "default"))
    if kind == "phi3" and rope["rope_type"] in ("su", "yarn"):
        rope["rope_type"] = "longrope"
    original = setting(c, "original_max_position_embeddings")
    if original is not None and rope["rope_type"] in ("yarn", "llama3", "longrope") and kind != "olmo3":
        rope["original_max_position_embeddings"] = original
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


def yarn(c, rope, inv, dim):
    factor = rope["factor"]
    if factor is None:
        factor = c["max_position_embeddings"] / rope["original_max_position_embeddings"]

    def magnitude(mscale):
        return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0

    scale = rope.get("attention_factor")
    if scale is None:
        scale = magnitude(1)
        if rope.get("mscale") and rope.get("mscale_all_dim"):
            scale = magnitude(rope["mscale"]) / magnitude(rope["mscale_all_dim"])
    ramp = yarn_ramp(rope, dim, float(rope["rope_theta"]))
    return inv * (ramp / factor + 1 - ramp), scale


def longrope(c, rope, inv, count):
    original = rope["original_max_position_embeddings"]
    factor, scale = rope.get("factor"), rope.get("attention_factor")
    if factor is None:
        factor = c["max_position_embeddings"] / original
    if scale is None:
        scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return inv / np.array(rope["long_factor" if count > original else "short_factor"]), scale


def frequencies(c, rope, count):
    """Returns the inverse frequencies for `count` tokens, and the factor of cos and sin."""
    dim, kind = sizes(c)["head_dim"], rope["rope_type"]
    if c["model_type"] in ("phi3", "glm4"):
        dim = int(dim * rope["partial_rotary_factor"])
    inv = float(rope["rope_theta"]) ** -(np.arange(0, dim, 2) / dim)
    if kind == "linear":
        return inv / rope["factor"], 1.0
    if kind == "llama3":
        turns = rope["original_max_position_embeddings"] * inv / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        share = np.clip((turns - low) / (high - low), 0, 1)
        return inv * ((1 - share) / rope["factor"] + share), 1.0
    if kind == "yarn":
        return yarn(c, rope, inv, dim)
    return longrope(c, rope, inv, count) if kind == "longrope" else (inv, 1.0)


def rotate(x, c, rope):
    """x [T, H, D]: rotates the first dimensions of each head, in pairs of neighbours or of halves."""
    inv, scale = frequencies(c, rope, len(x))
    angle = np.arange(len(x))[:, None] * inv.astype(np.float32).astype(np.float64)
    cos, sin = np.cos(angle)[:, None] * scale, np.sin(angle)[:, None] * scale
    first, rest = x[..., :2 * len(inv)], x[..., 2 * len(inv):]
    if c["model_type"] in INTERLEAVED:
        a, b = first[..., ::2], first[..., 1::2]
        turned = np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(first.shape)
    else:
        a, b = np.split(first, 2, axis=-1)
        turned = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return np.concatenate([turned, rest], axis=-1)


# ---- Parts ----------------------------------------------------------------------------------------------


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


# ---- Judges ---------------------------------------------------------------------------------------------


class NumpyJudge:
    name = "numpy"

    def open(self, folder, config, tensors):
        self.c, used = text_of(config), shapes(config)
        self.w = {n: x.astype(np.float64) for n, (x, _) in tensors.items() if n in used}
        table, head = self.w.get(embedding_name(config)), self.w.get("lm_head.weight")
        self.table = table if table is not None else head
        self.head = head if head is not None else table  # a different head overrides the config
        assert setting(self.c, "tie_word_embeddings") or (head is not None and table is not None)

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

    def norm(self, x, name):
        if self.c["model_type"] == "cohere2":
            return layer_norm(x, self.w[name + ".weight"], 0, setting(self.c, "layer_norm_eps"))
        return rms_norm(x, self.w[name + ".weight"], setting(self.c, "rms_norm_eps"))

    def queries_keys_values(self, h, p):
        """Each [T, heads, head_dim]."""
        s, kind = sizes(self.c), self.c["model_type"]
        H, K, D = s["heads"], s["kv"], s["head_dim"]
        if kind in FUSED_QKV:
            q, k, v = np.split(self.linear(h, p + "qkv_proj"), [H * D, (H + K) * D], axis=-1)
        else:
            q, k, v = (self.linear(h, p + n + "_proj") for n in "qkv")
        if kind in WHOLE_NORM:
            q, k = self.norm(q, p + "q_norm"), self.norm(k, p + "k_norm")
        q, k, v = (x.reshape(len(h), -1, D) for x in (q, k, v))
        if kind in HEAD_NORM:
            q, k = self.norm(q, p + "q_norm"), self.norm(k, p + "k_norm")
        return q, k, v

    def attention(self, h, i):
        c, p = self.c, "model.layers.%d.self_attn." % i
        window, scale = windows(c)[i], sizes(c)["head_dim"] ** -0.5
        q, k, v = self.queries_keys_values(h, p)
        if rotated_layers(c)[i]:
            rope = rope_dict(c, c["model_type"] == "olmo3" and window is not None)
            q, k = rotate(q, c, rope), rotate(k, c, rope)
        if c["model_type"] == "ministral3":
            turns = np.floor(np.arange(len(h)) / rope["original_max_position_embeddings"])
            q = q * (1 + rope["llama_4_scaling_beta"] * np.log(1 + turns))[:, None, None]
        if c["model_type"] == "granite":
            scale = setting(c, "attention_multiplier")
        return self.linear(attend(q, k, v, scale, window), p + "o_proj")

    def mlp(self, h, i):
        p = "model.layers.%d.mlp." % i
        if self.c["model_type"] in FUSED_MLP:
            gate, up = np.split(self.linear(h, p + "gate_up_proj"), 2, axis=-1)
        else:
            gate, up = self.linear(h, p + "gate_proj"), self.linear(h, p + "up_proj")
        return self.linear(gate / (1 + np.exp(-gate)) * up, p + "down_proj")

    def rotary(self, ids):
        """Every family but GPT-2."""
        c, layers = self.c, sizes(self.c)["layers"]
        before, after, before_mlp, after_mlp = NORMS.get(c["model_type"], LLAMA_NORMS)
        residual = setting(c, "residual_multiplier")
        x = self.table[ids] * setting(c, "embedding_multiplier")
        for i in range(layers):

            def norm(x, name):
                return self.norm(x, "model.layers.%d.%s" % (i, name)) if name else x

            h = norm(x, before)
            y = x + residual * norm(self.attention(h, i), after)
            parallel = before and not before_mlp
            h = h if parallel else norm(y, before_mlp)
            x = y + residual * norm(self.mlp(h, i), after_mlp)
        return self.norm(x, "model.norm")

    def logits(self, ids):
        c = self.c
        x = self.gpt2(ids) if c["model_type"] == "gpt2" else self.rotary(ids)
        scale = setting(c, "logit_scale") if c["model_type"] == "cohere2" else 1 / setting(c, "logits_scaling")
        return x @ self.head.T * scale


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
        with open(os.path.join(folder, "config.json")) as f:
            wrapped = json.load(f)["model_type"] == "mistral3"
        auto = self.transformers.AutoModelForImageTextToText if wrapped else self.transformers.AutoModelForCausalLM
        self.model = auto.from_pretrained(folder, dtype=self.torch.float32, attn_implementation="eager").eval()
        self.model.config.return_dict = True

    def logits(self, ids):
        with self.torch.no_grad():
            return self.model(self.torch.tensor([ids])).logits[0].double().numpy()
