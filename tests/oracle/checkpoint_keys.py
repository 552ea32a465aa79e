# SPDX-License-Identifier: MIT
"""Single keys of config.json for checkpoints.py: which are changed, to what, and with which effect."""
import json

from checkpoint_configs import WINDOW_TYPES, wrap

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
FULL, SLIDING = WINDOW_TYPES
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
    "ministral3": dict(COMMON, **dict(
        ROTARY, sliding_window=[3, None], attention_bias=[True], layer_types=[REFUSED, [FULL, FULL]],
        rope_scaling=[{"rope_type": "linear", "factor": 3.0, "llama_4_scaling_beta": 0.2,
                       "original_max_position_embeddings": 7}],
        rope_parameters=[{"rope_type": "default", "rope_theta": 50.0, "llama_4_scaling_beta": 0.2,
                          "original_max_position_embeddings": 7}])),
    "phi3": dict(COMMON, **dict(
        ROTARY, resid_pdrop=[0.5], embd_pdrop=[0.5], sliding_window=[3, None], original_max_position_embeddings=[3],
        rope_scaling=[{"type": "longrope", "short_factor": [1.0, 1.2, 1.4], "long_factor": [2.0, 3.0, 4.0]}],
        rope_parameters=[REFUSED, {"rope_type": "default", "rope_theta": 50.0},
                         {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0}])),
    "olmo2": dict(COMMON, **ROTARY, attention_bias=[REFUSED]),
    "olmo3": dict(COMMON, **dict(
        ROTARY, attention_bias=[REFUSED], sliding_window=[3], layer_types=[[FULL, SLIDING], [FULL, FULL]],
        rope_scaling=[{"rope_type": "linear", "factor": 3.0}],  # transformers ignores "type" here
        rope_parameters=[REFUSED, {"sliding_attention": {"rope_type": "linear", "factor": 2.0}, "full_attention": None},
                         {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0}])),
    "smollm3": dict(COMMON, **ROTARY, use_sliding_window=[False], sliding_window=[3, None], attention_bias=[REFUSED],
                    mlp_bias=[REFUSED], no_rope_layers=[[0, 1], [0, 0], None], no_rope_layer_interval=[1, 3],
                    layer_types=[REFUSED, [SLIDING, FULL]]),
    "granite": dict(COMMON, **ROTARY, attention_bias=[REFUSED], mlp_bias=[REFUSED], embedding_multiplier=[2, 0.3],
                    logits_scaling=[2, 0.3], residual_multiplier=[2, 0.3], attention_multiplier=[2, 0.3]),
    "glm4": dict(COMMON, **dict(ROTARY, attention_bias=[REFUSED], partial_rotary_factor=[0.25, 1.0])),
    "cohere2": dict({k: v for k, v in {**COMMON, **ROTARY}.items() if k != "rms_norm_eps"}, attention_bias=[REFUSED],
                    layer_norm_eps=[0.1], logit_scale=[0.5, 2.0], sliding_window=[3], sliding_window_pattern=[1, 3],
                    layer_types=[[FULL, SLIDING], [FULL, FULL]]),
    # Keys of the wrapper; those of the text model are tried below text_config.
    "mistral3": dict({k: v for k, v in COMMON.items() if k not in (
        "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range")},
        image_token_index=[7], projector_hidden_act=["relu"], vision_feature_layer=[-2], spatial_merge_size=[1],
        multimodal_projector_bias=[True], text_config=[], vision_config=[]),
}
YARN = {"factor": [5.0, None], "original_max_position_embeddings": [64], "attention_factor": [1.5, None], "beta_fast": [5, 0],
        "beta_slow": [0.2, 0], "mscale": [0.5], "mscale_all_dim": [0.5], "truncate": [False, None], "rope_theta": [321.0],
        "partial_rotary_factor": [REFUSED, 0.25, 0.5], "rope_type": ["default", "dynamic", "linear", REFUSED], "nobody_knows": [1]}
LLAMA3 = {"factor": [5.0], "original_max_position_embeddings": [64], "low_freq_factor": [0.5], "high_freq_factor": [9.0],
          "rope_theta": [321.0], "mscale": [2.0]}
LONGROPE = {"short_factor": [[9.0, 9.0, 9.0]], "long_factor": [[1.0, 2.0, 3.0]], "attention_factor": [1.5], "factor": [3.0],
            "rope_theta": [321.0], "rope_type": ["default", REFUSED], "partial_rotary_factor": [REFUSED, 0.5],
            "nobody_knows": [1]}
# Keys that do not affect logits; a change of any other key must change them or be refused.
SILENT = set("""bos_token_id eos_token_id pad_token_id architectures transformers_version dtype torch_dtype use_cache
    initializer_range output_hidden_states output_attentions return_dict chunk_size_feed_forward id2label label2id
    problem_type _name_or_path a_key_nobody_knows max_position_embeddings attention_dropout pretraining_tp resid_pdrop
    embd_pdrop attn_pdrop summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    reorder_and_upcast_attn n_ctx rope_parameters.nobody_knows""".split())
SILENT |= {"image_token_index", "projector_hidden_act", "vision_feature_layer", "spatial_merge_size",
           "multimodal_projector_bias", "text_config", "vision_config"}
SILENT_IN = {("llama", "sliding_window"), ("mistral", "use_sliding_window"), ("mistral", "attention_bias"),
             ("llama3", "rope_parameters.mscale"), ("ministral3", "attention_bias"), ("ministral3", "layer_types"),
             ("olmo3", "original_max_position_embeddings"), ("olmo3", "partial_rotary_factor"),
             ("olmo3", "rope_parameters.truncate"), ("phi3", "rope_parameters.short_factor"),
             ("mistral3", "attention_bias"), ("mistral3", "layer_types")}
LOUD_IN = {("phi3", "max_position_embeddings")}  # its ratio to the original length scales LongRoPE




def base_config(kind):
    """A checkpoint on which every key of the family has an effect."""
    if kind == "gpt2":
        return {"model_type": "gpt2", "vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 48,
                "n_inner": 50, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                "tie_word_embeddings": False}
    if kind == "mistral3":
        return wrap(None, base_config("ministral3"))
    c = {"model_type": kind, "vocab_size": 40, "hidden_size": 24, "intermediate_size": 30, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "pad_token_id": None}
    rope = {"rope_theta": 100.0, "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.3,
            "original_max_position_embeddings": 4096}
    if kind in ("mistral", "ministral3", "phi3", "olmo3", "cohere2"):
        c["sliding_window"] = 9
    if kind.startswith("qwen"):
        c.update(use_sliding_window=True, sliding_window=9, max_window_layers=1)
    if kind == "olmo3":
        c["layer_types"] = [SLIDING, FULL]
    if kind == "cohere2":
        c.update(sliding_window_pattern=2, logit_scale=0.3, layer_norm_eps=c.pop("rms_norm_eps"))
    if kind == "smollm3":
        c.update(use_sliding_window=True, sliding_window=9, no_rope_layer_interval=2)
    if kind == "granite":
        c.update(embedding_multiplier=1.5, residual_multiplier=0.7, attention_multiplier=0.4, logits_scaling=1.7)
    if kind == "glm4":
        c.update(attention_bias=True, partial_rotary_factor=0.5)
    if kind == "phi3":  # the long factors apply, whether the length or the context decides
        c.update(head_dim=6, original_max_position_embeddings=2)
        rope = {"rope_theta": 100.0, "rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0],
                "long_factor": [1.5, 3.0, 7.0]}
    return with_rope(c, rope)


def with_rope(c, rope):
    """A copy with other rope settings: those of the full layers in OLMo 3."""
    kind = c["model_type"]
    if kind == "mistral3":
        return dict(c, text_config=with_rope(c["text_config"], rope))
    if kind == "ministral3":
        rope = dict({"llama_4_scaling_beta": 0.3}, **rope)
        if rope["original_max_position_embeddings"] == 4096:
            rope["original_max_position_embeddings"] = 20  # queries are scaled from token 20 on
    if kind == "olmo3":
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
    return dict(c, rope_parameters=rope)


def rope_of(c):
    rope = c["rope_parameters"]
    return rope.get("full_attention", rope)


def values_of(base, values):
    """The values to try. A key with no value of its own is negated or doubled."""
    if values == [REFUSED]:
        return [not base] if base is None or isinstance(base, bool) else [2 * base]
    return [v for v in values if v != REFUSED]


def key_changes(base, fields):
    """Yields (key, value, changed config, may be refused)."""
    for key, values in fields.items():
        for value in values_of(base.get(key), values):
            c = json.loads(json.dumps(base))
            if key == "rope_theta" or key == "original_max_position_embeddings" and base["model_type"] != "olmo3":
                rope_of(c).pop(key, None)  # OLMo 3 ignores the second key outside of rope_parameters
            if key == "rope_scaling":
                c["rope_theta"] = rope_of(c)["rope_theta"]
                del c["rope_parameters"]
            c[key] = value
            yield key, value, c, REFUSED in values


def rope_changes(base):
    """Yields (config before, key, value, changed config, may be refused)."""
    kind = base["model_type"]
    llama3 = {"rope_theta": 100.0, "rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    tables = [(YARN, rope_of(base)), (LLAMA3, llama3)] if kind != "phi3" else [(LONGROPE, rope_of(base))]
    if kind == "ministral3":
        tables[0] = (dict(YARN, beta_fast=[1.5, 0], llama_4_scaling_beta=[0.9, 0]), rope_of(base))
    for table, rope in tables:
        for key, values in table.items():
            for value in values_of(None, values):
                yield (with_rope(base, rope), "rope_parameters." + key, value, with_rope(base, dict(rope, **{key: value})),
                       REFUSED in values)


def changes(kind):
    """Yields (config before, dotted key, value, changed config, may be refused)."""
    base = base_config(kind)
    for key, value, c, refusable in key_changes(base, FIELDS[kind]):
        yield base, key, value, c, refusable
    if kind == "mistral3":
        own = {k: v for k, v in FIELDS["ministral3"].items() if k not in COMMON}
        for key, value, c, refusable in key_changes(base["text_config"], own):
            yield base, "text_config." + key, value, dict(base, text_config=c), refusable
        for before, key, value, c, refusable in rope_changes(base["text_config"]):
            yield dict(base, text_config=before), "text_config." + key, value, dict(base, text_config=c), refusable
    elif kind != "gpt2":
        yield from rope_changes(base)


def is_silent(kind, key, c):
    """Whether a change of the key must not change logits."""
    key = key.removeprefix("text_config.")
    rope = None
    if key.startswith("rope_parameters."):
        rope = rope_of(c.get("text_config", c)).get("rope_type")
    return (key in SILENT or (kind, key) in SILENT_IN or (rope, key) in SILENT_IN) and (kind, key) not in LOUD_IN


def named(key, message):
    """Whether a refusal names the key, or the tensors or lists whose sizes it determines."""
    return key.split(".")[-1] in message or any(
        text in message for text in ("must be [", "is missing", "not a weight", "do not divide", "too few for",
                                     "_factor"))
