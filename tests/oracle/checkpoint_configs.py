# SPDX-License-Identifier: MIT
"""Random checkpoints for checkpoints.py: configs, tensors and files of every family that Weft loads."""
import json
import math
import os
import struct

import numpy as np

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


# ---- Families -------------------------------------------------------------------------------------------

CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
           "qwen3": "Qwen3ForCausalLM", "gpt2": "GPT2LMHeadModel", "ministral3": "Ministral3ForCausalLM",
           "mistral3": "Mistral3ForConditionalGeneration", "phi3": "Phi3ForCausalLM", "olmo2": "Olmo2ForCausalLM",
           "olmo3": "Olmo3ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "granite": "GraniteForCausalLM",
           "glm4": "Glm4ForCausalLM", "cohere2": "Cohere2ForCausalLM"}
# Norms of a block: before attention, after it, before the MLP, after it. No norm before the MLP although there
# is one before attention: both read the same norm, and their results are added together.
LLAMA_NORMS = ("input_layernorm", None, "post_attention_layernorm", None)
NORMS = {"olmo2": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
         "olmo3": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
         "glm4": ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
         "cohere2": ("input_layernorm", None, None, None)}
HEAD_NORM, WHOLE_NORM = ("qwen3",), ("olmo2", "olmo3")  # of queries and keys
FUSED_QKV, FUSED_MLP, INTERLEAVED = ("phi3",), ("phi3", "glm4"), ("glm4", "cohere2")
WINDOW_TYPES = ("full_attention", "sliding_attention")
# Defaults of transformers' config classes
DEFAULTS = {
    "gpt2": {"tie_word_embeddings": True}, "mistral": {"sliding_window": 4096},
    "qwen2": {"sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {"sliding_window": 4096, "max_window_layers": 28}, "ministral3": {"rms_norm_eps": 1e-5},
    "phi3": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}, "olmo2": {"rms_norm_eps": 1e-5},
    "olmo3": {"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "sliding_window": 4096, "sliding_window_pattern": 4},
    "smollm3": {"rope_theta": 2000000.0, "no_rope_layer_interval": 4, "tie_word_embeddings": True},
    "glm4": {"rms_norm_eps": 1.5625e-7, "attention_bias": True, "partial_rotary_factor": 0.5},
    "cohere2": {"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096, "sliding_window_pattern": 4,
                "tie_word_embeddings": True}}
OTHERWISE = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
             "attention_multiplier": 1.0, "logits_scaling": 1.0, "partial_rotary_factor": 1.0}
MINISTRAL_ROPE = {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384,
                  "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}


def setting(c, key):
    """The value of a key, or the default of the config's class."""
    return c[key] if key in c else DEFAULTS.get(c["model_type"], {}).get(key, OTHERWISE.get(key))


def text_of(c):
    """The config of the text model. Around it, only the wrapper's tie_word_embeddings counts."""
    if c["model_type"] != "mistral3":
        return c
    return dict(c["text_config"], tie_word_embeddings=c.get("tie_word_embeddings", True))


def layer_types(c):
    """Which layers have a window, for the families that can mix them."""
    kind, n = c["model_type"], c["num_hidden_layers"]
    if c.get("layer_types"):
        return c["layer_types"]
    if kind in ("olmo3", "cohere2"):
        period = setting(c, "sliding_window_pattern") if kind == "cohere2" else 4
        return ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(n)]
    sliding = [False] * n
    if kind in ("qwen2", "qwen3"):
        sliding = [bool(c.get("use_sliding_window")) and i >= setting(c, "max_window_layers") for i in range(n)]
    if kind == "smollm3" and c.get("use_sliding_window") and c.get("sliding_window"):
        sliding = [not r for r in rotated_layers(c)]
    return [WINDOW_TYPES[s] for s in sliding]


def rotated_layers(c):
    """Whether each layer rotates queries and keys."""
    kind, n = c["model_type"], c["num_hidden_layers"]
    if kind == "cohere2":
        return [t == "sliding_attention" for t in layer_types(c)]
    if kind == "smollm3":
        interval = setting(c, "no_rope_layer_interval")
        return [bool(r) for r in c.get("no_rope_layers") or [(i + 1) % interval for i in range(n)]][:n]
    return [True] * n


def windows(c):
    """The window of every layer; None: all tokens."""
    kind, window = c["model_type"], setting(c, "sliding_window")
    if kind in ("mistral", "ministral3", "phi3"):
        return [window] * c["num_hidden_layers"]
    if kind not in ("qwen2", "qwen3", "olmo3", "smollm3", "cohere2"):
        return [None] * c["num_hidden_layers"]
    if kind.startswith("qwen") and not c.get("use_sliding_window"):
        window = None
    return [window if t == "sliding_attention" else None for t in layer_types(c)]


def biases(c):
    """The projections that have a bias."""
    kind, attention, mlp = c["model_type"], bool(setting(c, "attention_bias")), bool(c.get("mlp_bias"))
    out = set()
    if kind == "qwen2" or attention and kind not in ("mistral", "ministral3", "phi3"):
        out |= {"q_proj", "k_proj", "v_proj"} | ({"o_proj"} if kind not in ("qwen2", "glm4") else set())
    if mlp and kind in ("llama", "smollm3", "granite"):
        out |= {"gate_proj", "up_proj", "down_proj"}
    return out


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


def random_ministral_rope(rng, context, head_dim):
    rope = random_rope(rng, context, head_dim)
    rope.setdefault("original_max_position_embeddings", rng.choice([4, 9, 16384]))
    rope["llama_4_scaling_beta"] = rng.choice([0.1, 0.5, 0, round(rng.uniform(0, 1), 3)])
    return rope


def random_longrope(rng, c):
    """Either the short factors apply to all lengths, or the long ones to all that the tests use."""
    share = rng.choice([1.0, 0.75, 0.5])
    dims = int(c["hidden_size"] // c["num_attention_heads"] * share)
    rope = {"rope_theta": rng.choice([10000.0, round(rng.uniform(50, 1e5), 3)]), "rope_type": "default"}
    if dims % 2:
        share, dims = 1.0, c["hidden_size"] // c["num_attention_heads"]
    if share != 1.0 or rng.random() < 0.3:
        rope["partial_rotary_factor"] = share
    if rng.random() < 0.7:
        c["original_max_position_embeddings"] = rng.choice([c["max_position_embeddings"], 2, 3, 4])
        rope.update(rope_type=rng.choice(["longrope", "longrope", "yarn"]),  # yarn: an old name of the same
                    short_factor=[round(rng.uniform(1, 3), 2) for _ in range(dims // 2)],
                    long_factor=[round(rng.uniform(1, 20), 2) for _ in range(dims // 2)])
        if rng.random() < 0.2:
            rope["attention_factor"] = round(rng.uniform(0.5, 2), 3)
        elif rng.random() < 0.2:
            rope["factor"] = round(rng.uniform(1, 40), 2)
    return rope


def random_olmo3_rope(rng, c, head_dim):
    """Nested parts, or the older keys, which scale the full layers only."""
    full = random_rope(rng, c["max_position_embeddings"], head_dim)
    full.pop("truncate", None)  # transformers looks for it in the wrong place
    way = rng.choice(["nested", "half", "scaling", "absent"])
    if way in ("nested", "half"):
        c["rope_parameters"] = {"full_attention": full}
        if way == "nested":
            c["rope_parameters"]["sliding_attention"] = {"rope_type": "default", "rope_theta": rng.choice([10000.0, 777.0])}
    elif way == "scaling":
        c["rope_theta"] = full.pop("rope_theta")
        c["rope_scaling"] = full if full["rope_type"] != "default" else None


def place_rope(rng, c, rope):
    """Stores rope settings as transformers 5 or 4 does."""
    if rng.random() < 0.5:
        c["rope_parameters"] = rope
        return
    c["rope_theta"] = rope.pop("rope_theta")
    plain = rope["rope_type"] == "default" and len(rope) == 1
    if rng.random() < 0.3:
        rope["type"] = rope.pop("rope_type")
    c["rope_scaling"] = None if plain else rope


def random_windows(rng, c, layers):
    """Keys that only some families have."""
    kind = c["model_type"]
    types = [rng.choice(WINDOW_TYPES) for _ in range(layers)]
    if kind in ("mistral", "ministral3", "phi3"):
        c["sliding_window"] = rng.choice([None, rng.randint(1, 12), 4096])
    if kind.startswith("qwen") or kind == "smollm3":
        c["use_sliding_window"] = rng.random() < 0.6
        c["sliding_window"] = rng.choice([None, rng.randint(1, 12), 4096])
        if kind != "smollm3":
            c["max_window_layers"] = rng.randint(0, layers)
        if c["use_sliding_window"] and c["sliding_window"] and rng.random() < 0.5:
            c["layer_types"] = types
    if kind in ("olmo3", "cohere2"):
        c["sliding_window"] = rng.choice([rng.randint(1, 12), 4096])
        if rng.random() < 0.6:
            c["layer_types"] = types
        elif kind == "cohere2" and rng.random() < 0.5:
            c["sliding_window_pattern"] = rng.randint(1, 4)
    if kind == "smollm3":
        if rng.random() < 0.5:
            c["no_rope_layers"] = [rng.randint(0, 1) for _ in range(layers)]
        else:
            c["no_rope_layer_interval"] = rng.randint(1, 4)


def random_scales(rng, c):
    kind = c["model_type"]
    if kind == "granite":
        for key in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
            c[key] = rng.choice([1.0, 2, round(rng.uniform(0.1, 3), 3)])
    if kind == "cohere2":
        c["logit_scale"] = rng.choice([0.0625, 1.0, round(rng.uniform(0.1, 2), 3)])
        c["layer_norm_eps"] = c.pop("rms_norm_eps")


def random_rotary(rng, kind):
    heads = rng.choice([1, 2, 3, 4, 6])
    kv = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    width = heads * rng.choice([4, 8, 10, 16, 24])
    context = rng.choice([48, 64, 100, 128])
    layers = rng.randint(1, 3) if kind not in ("olmo3", "smollm3", "cohere2") else rng.randint(1, 5)
    c = {"model_type": kind, "vocab_size": rng.randint(24, 150), "hidden_size": width,
         "intermediate_size": rng.randint(5, 70), "num_hidden_layers": layers, "num_attention_heads": heads,
         "num_key_value_heads": kv, "hidden_act": rng.choice(["silu", "silu", "swish"]),
         "max_position_embeddings": context, "rms_norm_eps": rng.choice([1e-6, 1e-5, round(rng.uniform(0, 1e-3), 7)])}
    head_dim, stated = width // heads, kind in ("qwen3", "glm4", "ministral3")
    if kind != "phi3" and (stated or head_dim % 2 or rng.random() < 0.4):
        head_dim = rng.choice([2, 4, 6, 8, 16, 32])
    if head_dim != width // heads or stated or rng.random() < 0.5:
        c["head_dim"] = head_dim
    if kv == heads and kind in ("llama", "phi3", "olmo2", "olmo3", "granite", "cohere2") and rng.random() < 0.5:
        c["num_key_value_heads"] = None
    if kind == "olmo3":
        random_olmo3_rope(rng, c, head_dim)
    elif kind == "phi3":
        place_rope(rng, c, random_longrope(rng, c))
    elif kind == "glm4":
        share = rng.choice([1.0, 0.5, 0.25] if head_dim % 8 == 0 else [1.0])
        rope = random_rope(rng, context, int(head_dim * share))
        rng.choice([c, rope])["partial_rotary_factor"] = share
        place_rope(rng, c, rope)
    elif kind != "ministral3":
        place_rope(rng, c, random_rope(rng, context, head_dim))
    elif rng.random() < 0.9:
        place_rope(rng, c, random_ministral_rope(rng, context, head_dim))
    if kind in ("llama", "smollm3", "granite"):
        c.update(attention_bias=rng.random() < 0.4, mlp_bias=rng.random() < 0.4)
    if kind in ("qwen3", "olmo2", "olmo3", "glm4", "cohere2"):
        c["attention_bias"] = rng.random() < 0.4
    random_windows(rng, c, layers)
    random_scales(rng, c)
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


# Keys that may be absent. Weft needs the sizes.
OPTIONAL = ["rms_norm_eps", "layer_norm_eps", "attention_bias", "mlp_bias", "embedding_multiplier", "residual_multiplier",
            "attention_multiplier", "logits_scaling", "logit_scale", "hidden_act", "rope_theta", "use_sliding_window"]


def wrap(rng, text):
    """A multimodal config around a text config."""
    c = {"model_type": "mistral3", "text_config": text, "image_token_index": 10, "spatial_merge_size": 2,
         "vision_config": {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                           "num_attention_heads": 2, "head_dim": 4, "patch_size": 2, "image_size": 4}}
    tied = text.pop("tie_word_embeddings")
    if not tied or rng.random() < 0.5:
        c["tie_word_embeddings"] = tied
    return c


def draw_config(rng, kind):
    if kind == "mistral3":
        return dict(wrap(rng, draw_config(rng, rng.choice(["ministral3", "mistral"]))), architectures=[CLASSES[kind]])
    c = random_gpt2(rng) if kind == "gpt2" else random_rotary(rng, kind)
    c["architectures"] = [CLASSES[kind]]
    c["tie_word_embeddings"] = rng.random() < 0.5
    if kind not in ("llama", "mistral", "qwen2", "qwen3", "gpt2"):
        for key in OPTIONAL:
            if key in c and rng.random() < 0.15:
                del c[key]
    c.update(bos_token_id=0, eos_token_id=1, pad_token_id=None)
    return c


def random_config(rng, kind):
    """Half of the configs can be converted to GGUF: few random ones can in some families."""
    convertible, c = rng.random() < 0.5, draw_config(rng, kind)
    while convertible and not held_by_gguf(c):
        c = draw_config(rng, kind)
    return c


def held_by_gguf(c):
    """Whether the keys of GGUF, as llama.cpp defines them, can express a config."""
    wrapped, c = c["model_type"] == "mistral3", text_of(c)
    kind, s = c["model_type"], sizes(c)
    own = s["head_dim"] == s["width"] // s["heads"]
    rope = dict(c.get("rope_scaling") or c.get("rope_parameters") or {})
    rope = rope.get("full_attention", rope)
    scaling = rope.get("rope_type", rope.get("type", "default"))
    if kind == "ministral3" or wrapped:
        return (kind == "mistral" or not rope or scaling == "yarn") and not any(windows(c))
    if kind == "phi3":
        return own and "factor" not in rope and "attention_factor" not in rope
    if kind in ("llama", "mistral", "qwen2", "qwen3", "gpt2"):
        return True
    if kind in ("olmo2", "olmo3") and not (own and not biases(c) and not c["tie_word_embeddings"]):
        return False
    if kind == "smollm3":
        period = [(i + 1) % 4 != 0 for i in range(s["layers"])]
        own = rotated_layers(c) == period and not any(windows(c)) and not biases(c)
    if kind == "cohere2":
        period = [WINDOW_TYPES[(i + 1) % 4 != 0] for i in range(s["layers"])]
        own = layer_types(c) == period and not biases(c) and c["tie_word_embeddings"] and scaling == "default"
    return (own or kind == "glm4") and scaling != "llama3"


# ---- Weights --------------------------------------------------------------------------------------------


def sizes(c):
    """The sizes that the judges need, with transformers' defaults."""
    c = text_of(c)
    if c["model_type"] == "gpt2":
        width = c.get("n_embd", c.get("hidden_size"))
        heads = c.get("n_head", c.get("num_attention_heads"))
        return dict(layers=c.get("n_layer", c.get("num_hidden_layers")), width=width, heads=heads, kv=heads,
                    head_dim=width // heads, hidden=c.get("n_inner") or 4 * width, vocab=c["vocab_size"],
                    context=c.get("n_positions", c.get("max_position_embeddings", 1024)))
    heads = c["num_attention_heads"]
    return dict(layers=c["num_hidden_layers"], width=c["hidden_size"], heads=heads,
                kv=c.get("num_key_value_heads") or heads,
                head_dim=c.get("head_dim") or c["hidden_size"] // heads, hidden=c["intermediate_size"],
                vocab=c["vocab_size"], context=c["max_position_embeddings"])


def gpt2_shapes(s):
    C, M = s["width"], s["hidden"]
    out = {"transformer.wte.weight": (s["vocab"], C), "transformer.wpe.weight": (s["context"], C)}
    for i in range(s["layers"]):
        p = "transformer.h.%d." % i
        for name, shape in (("ln_1", (C,)), ("attn.c_attn", (C, 3 * C)), ("attn.c_proj", (C, C)), ("ln_2", (C,)),
                            ("mlp.c_fc", (C, M)), ("mlp.c_proj", (M, C))):
            out[p + name + ".weight"] = shape
            out[p + name + ".bias"] = shape[-1:]
    out["transformer.ln_f.weight"] = out["transformer.ln_f.bias"] = (C,)
    return out


def projections(c):
    """The matrices of a block, [out, in]."""
    s, kind = sizes(c), c["model_type"]
    C, D, H, K, M = s["width"], s["head_dim"], s["heads"], s["kv"], s["hidden"]
    qkv = {"q_proj": (H * D, C), "k_proj": (K * D, C), "v_proj": (K * D, C)}
    gate_up = {"gate_proj": (M, C), "up_proj": (M, C)}
    if kind in FUSED_QKV:
        qkv = {"qkv_proj": ((H + 2 * K) * D, C)}
    if kind in FUSED_MLP:
        gate_up = {"gate_up_proj": (2 * M, C)}
    out = {"self_attn." + n: shape for n, shape in dict(qkv, o_proj=(C, H * D)).items()}
    return dict(out, **{"mlp." + n: shape for n, shape in dict(gate_up, down_proj=(C, M)).items()})


def shapes(c):
    """Names and shapes of a checkpoint's tensors; a wrapper's by the names of its text model."""
    c = text_of(c)
    s, kind = sizes(c), c["model_type"]
    if kind == "gpt2":
        return dict(gpt2_shapes(s), **{"lm_head.weight": (s["vocab"], s["width"])})
    out = {"model.embed_tokens.weight": (s["vocab"], s["width"])}
    for i in range(s["layers"]):
        p = "model.layers.%d." % i
        for name, shape in projections(c).items():
            out[p + name + ".weight"] = shape
            if name.split(".")[1] in biases(c):
                out[p + name + ".bias"] = shape[:1]
        for name in NORMS.get(kind, LLAMA_NORMS):
            if name:
                out[p + name + ".weight"] = (s["width"],)
        if kind in HEAD_NORM + WHOLE_NORM:
            heads = (s["heads"], s["kv"]) if kind in WHOLE_NORM else (1, 1)
            for n, count in zip("qk", heads):
                out[p + "self_attn.%s_norm.weight" % n] = (count * s["head_dim"],)
    out["model.norm.weight"] = (s["width"],)
    out["lm_head.weight"] = (s["vocab"], s["width"])
    return out


def embedding_name(c):
    """For the text model of a wrapper too."""
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
    if text_of(c)["tie_word_embeddings"]:
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


def stored(rng, c, tensors):
    """Renames tensors as some checkpoints do, and adds tensors that a reader must skip."""
    if c["model_type"] == "mistral3":
        old = rng.random() < 0.7  # names of the hub, which save_pretrained also writes
        where = ("language_model.model.", "language_model.", "") if old else ("model.language_model.", "", "model.")
        out = {(where[0] + n[len("model."):]) if n.startswith("model.") else where[1] + n: t for n, t in tensors.items()}
        for name in ("vision_tower.ln_pre.weight", "multi_modal_projector.norm.weight"):
            out[where[2] + name] = (np.ones(8, np.float32), "F32")
        return out
    if rng.random() < 0.2:  # saved without the head's class: names lack the prefix
        tensors = {n.replace("transformer.", "").replace("model.", "", 1): t for n, t in tensors.items()}
    if c["model_type"] == "gpt2" and rng.random() < 0.3:  # attention masks of old checkpoints
        n = sizes(c)["context"]
        tensors = dict(tensors, **{"h.0.attn.bias": (np.tril(np.ones((1, 1, n, n))), "F32")})
    return tensors
