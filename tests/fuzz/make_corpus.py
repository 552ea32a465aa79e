#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets: python3 tests/fuzz/make_corpus.py

Each is a small, complete file; together they cover every kind that the readers know. Inputs that
fuzzing adds to the corpora have hashes as names.
"""
import base64
import json
import os
import struct

ROOT = os.path.dirname(os.path.abspath(__file__))


def write(target, name, data):
    folder = os.path.join(ROOT, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


# ---- tokenizer.json ----

def letters():
    """The characters that represent bytes in byte-level vocabularies."""
    out, extra = [], 0x100
    for b in range(256):
        if 0x21 <= b <= 0x7E or (0xA1 <= b and b != 0xAD):
            out.append(chr(b))
        else:
            out.append(chr(extra))
            extra += 1
    return out


MERGES = ["l o", "lo w", "a a", "aa aa", "\u0120 low", "1 2", "' s"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def added(*rows):
    return [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": special, **more} for i, text, special, more in rows]


def bpe(vocab, merges, **more):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
            "merges": merges, **more}


def template(token, i):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}}}


def charsmap():
    """Replaces A by a, and AB by nothing: the child of unit i by byte c is unit i ^ offset ^ c."""
    units = [0x40 << 10, ord("A") | 1 << 8 | (1 ^ 4) << 10, 0, 0, 0 | 1 << 31, 2 | 1 << 31] + [0] * 70
    units[4 ^ ord("B")] = ord("B") | 1 << 8 | (4 ^ ord("B") ^ 5) << 10
    return struct.pack("<I%dI" % len(units), 4 * len(units), *units) + b"a\0\0"


def byte_level(few=None):
    tokens = ["<|end|>", "[x]"] + (few or letters()) + [m.replace(" ", "") for m in MERGES]
    return {t: i for i, t in enumerate(tokens)}


# Not all bytes: the fuzzer explores small inputs faster.
FEW = list("'12aelosw\u0120\u010a")


def tokenizers():
    end = added((0, "<|end|>", True, {}), (1, "[x]", False, {"lstrip": True, "single_word": True}))
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    yield "bytes", {"added_tokens": end, "normalizer": None, "pre_tokenizer": level,
                    "post_processor": None, "decoder": level, "model": bpe(byte_level(), MERGES)}
    few = byte_level(FEW)
    yield "gpt2", {"version": "1.0", "truncation": None, "padding": None, "added_tokens": end,
                   "normalizer": None, "pre_tokenizer": level, "post_processor": level,
                   "decoder": level, "model": bpe(few, MERGES)}
    yield "llama3", {"added_tokens": end, "normalizer": None, "pre_tokenizer": split(LLAMA3),
                     "post_processor": {"type": "Sequence", "processors": [level, template("<|end|>", 0)]},
                     "decoder": level,
                     "model": bpe(few, [m.split(" ") for m in MERGES], ignore_merges=True)}
    yield "qwen2", {"added_tokens": end, "normalizer": {"type": "NFC"}, "pre_tokenizer": split(QWEN2),
                    "post_processor": level, "decoder": level, "model": bpe(few, MERGES)}
    yield "pattern", {"added_tokens": end, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "MergedWithNext"},
        {"type": "Split", "pattern": {"Regex": r"[a-z]+|\s+$"}, "behavior": "MergedWithPrevious", "invert": True},
        {"type": "Split", "pattern": {"String": "lo"}, "behavior": "Removed", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
        "decoder": level, "model": bpe(few, MERGES)}
    pieces = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in (9, 10, 32, 195, 169, 255)] + \
        ["\u2581", "a", "e", "l", "o", "w", "lo", "low", "\u2581low", "\u2581\u2581"]
    vocab = {t: i for i, t in enumerate(pieces)}
    merges = ["l o", "lo w", "\u2581 low", "\u2581 \u2581"]
    specials = added((0, "<unk>", True, {}), (1, "<s>", True, {}), (2, "</s>", True, {"normalized": True}))
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    model = bpe(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    yield "pieces", {"added_tokens": specials, "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None, "post_processor": template("<s>", 1), "decoder": decoder, "model": model}
    yield "metaspace", {"added_tokens": specials, "normalizer": None,
                        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                                          "prepend_scheme": "first", "split": False},
                        "post_processor": {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},
                        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"},
                        "model": model}
    words = ["[UNK]", "[CLS]", "[SEP]", "low", "##e", "##r", "a", "##a", "'", "s", "\u4f60", "hello", ",", "##aa"]
    yield "bert", {"added_tokens": added((0, "[UNK]", True, {}), (1, "[CLS]", True, {}), (2, "[SEP]", True, {})),
                   "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                                  "strip_accents": None, "lowercase": True},
                   "pre_tokenizer": {"type": "BertPreTokenizer"},
                   "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
                   "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                   "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                             "max_input_chars_per_word": 100, "vocab": {t: i for i, t in enumerate(words)}}}
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    unigram = {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
               "vocab": [[t, -float(i)] for i, t in enumerate(pieces)]}
    yield "unigram", {"added_tokens": specials, "normalizer": {
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "decoder": space, "model": unigram}
    yield "normal", {"added_tokens": specials, "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Nmt"}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "NFKC"}, {"type": "NFD"},
        {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]},
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": None, "model": unigram}


CONFIG = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<|end|>",
          "eos_token": {"__type": "AddedToken", "content": "<|end|>", "special": True}, "pad_token": None,
          "added_tokens_decoder": {"0": {"content": "<|end|>", "special": True}},
          "chat_template": "{{ messages }}"}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---- GGUF ----

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q",
           F64: "d"}


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def value(kind, x):
    return text(x) if kind == STRING else struct.pack("<" + FORMATS[kind], x)


def gguf(pairs, tensors=(), version=3):
    """pairs: (key, kind, value or list); tensors: (name, dims innermost first, type, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, kind, x in pairs:
        if isinstance(x, list):
            out += text(key) + struct.pack("<IIQ", ARRAY, kind, len(x)) + b"".join(value(kind, y) for y in x)
        else:
            out += text(key) + struct.pack("<I", kind) + value(kind, x)
    align = next((x for key, _, x in pairs if key == "general.alignment"), 32)
    data = b""
    for name, dims, number, body in tensors:
        data += b"\0" * (-len(data) % align)
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        out += struct.pack("<IQ", number, len(data))
        data += body
    return out + b"\0" * (-len(out) % align) + data


def sizes(arch, eps="attention.layer_norm_rms_epsilon"):
    return [("general.architecture", STRING, arch), ("general.name", STRING, "tiny"),
            (arch + ".block_count", U32, 2), (arch + ".context_length", U32, 64),
            (arch + ".embedding_length", U32, 32), (arch + ".feed_forward_length", U32, 64),
            (arch + ".attention.head_count", U32, 4), (arch + "." + eps, F32, 1e-5)]


def byte_vocab(pre, few=FEW):
    vocab = list(byte_level(few))
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, pre),
            ("tokenizer.ggml.tokens", STRING, vocab),
            ("tokenizer.ggml.token_type", I32, [3, 4] + [1] * (len(vocab) - 2)),
            ("tokenizer.ggml.merges", STRING, MERGES), ("tokenizer.ggml.bos_token_id", U32, 0),
            ("tokenizer.ggml.eos_token_id", U32, 0), ("tokenizer.ggml.add_bos_token", BOOL, 1)]


def piece_vocab():
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in (9, 10, 32, 195, 169, 255)] + \
        ["\u2581", "a", "e", "l", "o", "w", "lo", "low", "\u2581low"]
    return [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", STRING, tokens),
            ("tokenizer.ggml.scores", F32, [-float(i) for i in range(len(tokens))]),
            ("tokenizer.ggml.token_type", I32, [2, 3, 3] + [6] * 6 + [1] * (len(tokens) - 9)),
            ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.ggml.bos_token_id", U32, 1),
            ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.add_space_prefix", BOOL, 1)]


def unigram_vocab():
    pairs = dict((key, (kind, x)) for key, kind, x in piece_vocab())
    pairs["tokenizer.ggml.model"] = (STRING, "t5")
    pairs["tokenizer.ggml.remove_extra_whitespaces"] = (BOOL, 1)
    pairs["tokenizer.ggml.precompiled_charsmap"] = (U8, list(charsmap()))
    return [(key, kind, x) for key, (kind, x) in pairs.items()]


def word_vocab():
    tokens = ["[UNK]", "[CLS]", "[SEP]", "\u2581low", "er", "\u2581a", "a", "\u2581'", "\u2581s", "\u2581hello"]
    return [("tokenizer.ggml.model", STRING, "bert"), ("tokenizer.ggml.tokens", STRING, tokens),
            ("tokenizer.ggml.token_type", I32, [3, 3, 3] + [1] * (len(tokens) - 3)),
            ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.ggml.cls_token_id", U32, 1),
            ("tokenizer.ggml.seperator_token_id", U32, 2), ("tokenizer.ggml.normalizer.lowercase", BOOL, 1),
            ("tokenizer.ggml.normalizer.strip_accents", BOOL, 0)]


def make_gguf():
    f32 = ("output.weight", [4, 2], 0, b"\0" * 32)
    write("gguf", "every-kind", gguf(
        [("k%d" % kind, kind, "x" if kind == STRING else 1) for kind in range(13) if kind != ARRAY] +
        [("a%d" % kind, kind, ["x", ""] if kind == STRING else [1, 0]) for kind in range(13) if kind != ARRAY]))
    write("gguf", "every-type", gguf([("general.alignment", U32, 8)], [
        f32, ("h", [3], 1, b"\0" * 6), ("b", [3], 30, b"\0" * 6), ("q40", [32], 2, b"\0" * 18),
        ("q41", [32], 3, b"\0" * 20), ("q80", [32, 2], 8, b"\0" * 68), ("q4k", [256], 12, b"\0" * 144),
        ("q6k", [256], 14, b"\0" * 210), ("i32", [1, 1, 1, 2], 26, b"\0" * 8)]))
    write("gguf", "version-2", gguf(sizes("llama"), version=2))
    rope = [("llama.rope.freq_base", F32, 5e5), ("llama.rope.dimension_count", U32, 8),
            ("llama.attention.head_count_kv", I32, [2, 2])]
    write("gguf", "llama-bpe", gguf(sizes("llama") + rope + byte_vocab("llama-bpe"), [
        ("rope_freqs.weight", [4], 0, struct.pack("<4f", 1, 1, 2, 8)), f32]))
    write("gguf", "llama-spm", gguf(sizes("llama") + piece_vocab() + [
        ("llama.rope.scaling.type", STRING, "yarn"), ("llama.rope.scaling.factor", F32, 4.0),
        ("llama.rope.scaling.original_context_length", U32, 16)]))
    write("gguf", "qwen2", gguf(sizes("qwen2") + byte_vocab("qwen2") + [
        ("qwen2.attention.sliding_window", U32, 8),
        ("qwen2.attention.sliding_window_pattern", BOOL, [0, 1]), ("qwen2.rope.scale_linear", F32, 2.0)]))
    write("gguf", "qwen3", gguf(sizes("qwen3") + byte_vocab("deepseek-v3") + [
        ("qwen3.attention.key_length", U32, 16), ("qwen3.attention.value_length", U32, 16),
        ("qwen3.vocab_size", U32, 19), ("tokenizer.chat_template", STRING, "{{ messages }}")]))
    write("gguf", "gpt2", gguf(sizes("gpt2", "attention.layer_norm_epsilon") + byte_vocab("gpt-2")))
    write("gguf", "unigram", gguf(unigram_vocab()))
    write("gguf", "wordpiece", gguf(word_vocab()))
    write("gguf", "gpt2-bytes", gguf(byte_vocab("smollm", letters())))
    for name, row in later_gguf():
        write("gguf", name, row)
    for name, row in models():
        write("gguf", "model-" + name, row)


def later_gguf():
    """Yields keys of the later families, with the tensors that say which kind of model it is."""
    factors = [("rope_factors_%s.weight" % which, [4], 0, struct.pack("<4f", 1, 1, 2, 8)) for which in ("short", "long")]
    yield "mistral3", gguf(sizes("mistral3") + [
        ("mistral3.attention.temperature_scale", F32, 0.5), ("mistral3.rope.scaling.type", STRING, "yarn"),
        ("mistral3.rope.scaling.factor", F32, 8.0), ("mistral3.rope.scaling.yarn_log_multiplier", F32, 0.5),
        ("mistral3.rope.scaling.original_context_length", U32, 16)])
    yield "phi3", gguf(sizes("phi3") + [
        ("phi3.rope.scaling.original_context_length", U32, 16), ("phi3.rope.scaling.attn_factor", F32, 1.2),
        ("phi3.attention.sliding_window", U32, 0)], factors)
    yield "olmo2", gguf(sizes("olmo2") + [
        ("olmo2.attention.sliding_window", U32, 8), ("olmo2.attention.sliding_window_pattern", BOOL, [1, 0]),
        ("olmo2.rope.freq_base", F32, 1e3), ("olmo2.rope.freq_base_swa", F32, 1e4)])
    yield "smollm3", gguf(sizes("smollm3") + [("weft.rope_layers", BOOL, [1, 0])])
    yield "granite", gguf(sizes("granite") + [
        ("granite." + key, F32, 0.5) for key in ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")])
    yield "glm4", gguf(sizes("glm4") + [("glm4.attention.key_length", U32, 16), ("glm4.attention.value_length", U32, 16),
                                        ("glm4.rope.dimension_count", U32, 8)])
    yield "cohere2", gguf(sizes("cohere2", "attention.layer_norm_epsilon") + [
        ("cohere2.attention.sliding_window", U32, 8), ("cohere2.attention.sliding_window_pattern", U32, 2),
        ("cohere2.logit_scale", F32, 0.25)])


# ---- Whole models, with few bytes ----

def model(arch, fused=False, fused_mlp=False, norms=("attn_norm", "ffn_norm"), matrix=2, bias=False, tied=True,
          layers=1, keys=(), q_norm=(), gate=True, positions=False):
    """matrix: 1 for f16, 8 for q8_0, 2 for q4_0, whose columns are multiples of 32."""
    size = {1: lambda n: 2 * n, 8: lambda n: n // 32 * 34, 2: lambda n: n // 32 * 18}[matrix]
    width = hidden = 4 if matrix == 1 else 32
    heads, kv, dim, vocab, context = 2, 1, width // 2, 3, 4
    kv = heads if bias else kv
    eps = "attention.layer_norm_epsilon" if arch in ("gpt2", "cohere2") else "attention.layer_norm_rms_epsilon"
    pairs = [("general.architecture", STRING, arch)] + [(arch + "." + key, U32, n) for key, n in (
        ("block_count", layers), ("context_length", context), ("embedding_length", width),
        ("feed_forward_length", hidden), ("attention.head_count", heads), ("attention.head_count_kv", kv))]
    pairs += [(arch + "." + eps, F32, 1e-5)] + [(arch + "." + key, kind, x) for key, kind, x in keys]
    tensors = []

    def vector(name, n):
        tensors.append((name, [n], 0, struct.pack("<%df" % n, *[1] * n)))

    def linear(name, columns, rows):
        tensors.append((name + ".weight", [columns, rows], matrix, bytes(size(columns * rows))))
        if bias:
            vector(name + ".bias", rows)

    def norm(name, n):
        vector(name + ".weight", n)
        if arch == "gpt2":
            vector(name + ".bias", n)

    tensors.append(("token_embd.weight", [width, vocab], matrix, bytes(size(width * vocab))))
    if positions:
        tensors.append(("position_embd.weight", [width, context], matrix, bytes(size(width * context))))
    for i in range(layers):
        at = "blk.%d." % i
        q, k = heads * dim, kv * dim
        for name in norms:
            norm(at + name, width)
        for name, n in zip(q_norm, (q, k)):
            norm(at + name, n)
        for name, columns, rows in ([("attn_qkv", width, q + 2 * k)] if fused else
                                    [("attn_q", width, q), ("attn_k", width, k), ("attn_v", width, k)]):
            linear(at + name, columns, rows)
        linear(at + "attn_output", q, width)
        if gate and not fused_mlp:
            linear(at + "ffn_gate", width, hidden)
        linear(at + "ffn_up", width, hidden * (2 if fused_mlp else 1))
        linear(at + "ffn_down", hidden, width)
    norm("output_norm", width)
    if not tied:
        tensors.append(("output.weight", [width, vocab], matrix, bytes(size(width * vocab))))
    return gguf(pairs, tensors)


def models():
    post = ("post_attention_norm", "post_ffw_norm")
    yield "llama", model("llama", tied=False, matrix=1, layers=2)
    yield "gpt2", model("gpt2", fused=True, bias=True, gate=False, positions=True, matrix=1)
    yield "phi3", model("phi3", fused=True, fused_mlp=True, matrix=1, tied=False)
    yield "phi3-split", model("phi3", fused_mlp=True, matrix=1, tied=False)
    yield "olmo2", model("olmo2", norms=post, q_norm=("attn_q_norm", "attn_k_norm"), matrix=1, tied=False)
    yield "smollm3", model("smollm3", matrix=8)
    yield "granite", model("granite", matrix=2, keys=[("logit_scale", F32, 0.5)])
    yield "cohere2", model("cohere2", norms=("attn_norm",), matrix=1, keys=[
        ("attention.sliding_window", U32, 8), ("logit_scale", F32, 0.25)])
    yield "missing", model("llama", tied=False, matrix=1)[:-60]


# ---- Keys and values of the fixture olmo3: 4 layers, the last without a window of 8 tokens ----

def cache(pages, tokens=None, salt=0, keys=(), window=8, drop=None, kind=I32):
    first = max(0, pages * 16 - window + 1) // 16
    pairs = [("general.type", STRING, "weft.cache"), ("weft.cache.version", U32, 1),
             ("weft.cache.identity", I64, 0), ("weft.cache.salt", I64, salt),
             ("weft.cache.tokens", kind, list(range(3, 3 + 16 * pages)) if tokens is None else tokens)]
    tensors = []
    for layer in range(4):
        have = pages if layer == 3 else pages - first
        for part in "kv":
            name = "kv.%d.%s" % (layer, part)
            if have and name != drop:
                tensors.append((name, [8, 2, 16, have], 1, bytes(2 * 8 * 2 * 16 * have)))
    return gguf(pairs + list(keys), tensors + [("checksum", [2], 26, bytes(8))])


def make_caches():
    write("cache", "one", cache(1))
    write("cache", "two", cache(2, salt=-7))
    write("cache", "most", cache(3))
    write("cache", "too-many", cache(5))
    write("cache", "token", cache(1, tokens=[3] * 15 + [288]))
    write("cache", "part", cache(1, tokens=[3] * 17))
    write("cache", "none", cache(1, tokens=[]))
    write("cache", "key", cache(1, keys=[("weft.cache.other", U32, 1)]))
    write("cache", "kind", cache(1, kind=F32))
    write("cache", "missing", cache(1, drop="kv.2.v"))


def make_imatrix():
    keys = [("general.type", STRING, "imatrix"), ("imatrix.datasets", STRING, ["text"]),
            ("imatrix.chunk_count", U32, 2), ("imatrix.chunk_size", U32, 64)]

    def sums(name, columns, value_=1.0, count=128.0):
        return [(name + ".weight.in_sum2", [columns], 0, struct.pack("<%df" % columns, *[value_] * columns)),
                (name + ".weight.counts", [1], 0, struct.pack("<f", count))]

    both = sums("blk.0.attn_q", 4) + sums("blk.0.ffn_down", 6)
    write("imatrix", "layers", gguf(keys, both))
    write("imatrix", "output", gguf(keys, both + sums("output", 4)))
    write("imatrix", "other", gguf(keys, both + sums("blk.1.attn_q", 4)))
    write("imatrix", "missing", gguf(keys, both[:3]))
    write("imatrix", "columns", gguf(keys, sums("blk.0.attn_q", 5) + both[2:]))
    write("imatrix", "negative", gguf(keys, sums("blk.0.attn_q", 4, -1.0) + both[2:]))
    write("imatrix", "fused", gguf(keys, sums("blk.0.attn_qkv", 4) + both[2:]))
    write("imatrix", "model", gguf([("general.type", STRING, "model")], both))


# ---- safetensors ----

def safetensors(header, data):
    header = header if isinstance(header, str) else compact(header)
    return struct.pack("<Q", len(header.encode())) + header.encode() + data


def make_safetensors():
    types = [("F64", 8), ("I64", 8), ("F32", 4), ("I32", 4), ("BF16", 2), ("F16", 2), ("I8", 1), ("U8", 1),
             ("BOOL", 1), ("F8_E4M3", 1)]
    header, at = {"__metadata__": {"format": "pt", "by": "hand"}}, 0
    for name, width in types:
        header["t." + name] = {"dtype": name, "shape": [1, 2], "data_offsets": [at, at + 2 * width]}
        at += 2 * width
    write("safetensors", "types", safetensors(header, bytes(at)))
    write("safetensors", "scalar-empty", safetensors(
        {"s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
         "e": {"dtype": "F16", "shape": [3, 0], "data_offsets": [4, 4]}}, bytes(4)))
    write("safetensors", "spaces", safetensors(' {"a":{"data_offsets":[0,1],"shape":[1],"dtype":"U8"}}   ', b"x"))
    write("safetensors", "none", safetensors("{}", b""))
    write("safetensors", "index", compact(
        {"metadata": {"total_size": 8}, "weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}))
    write("safetensors", "index-wrong", compact(
        {"weight_map": {"a": "a.safetensors", "c": "../b.safetensors"}}))


# ---- config.json ----

def make_configs():
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
             "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
             "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": False,
             "rope_theta": 10000.0}
    rows = {
        "llama": llama,
        "llama3": {**llama, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16}},
        "yarn": {**llama, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 5e5, "factor": 4, "original_max_position_embeddings": 16,
            "beta_fast": 32, "beta_slow": 1, "attention_factor": 1.2}},
        "mistral": {**llama, "model_type": "mistral", "sliding_window": 16, "head_dim": 16},
        "qwen2": {**llama, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8,
                  "max_window_layers": 1},
        "qwen3": {**llama, "model_type": "qwen3", "head_dim": 16, "use_sliding_window": True,
                  "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"],
                  "rope_scaling": {"type": "linear", "factor": 2}},
        "gpt2": {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_ctx": 64, "n_positions": 64,
                 "n_inner": None, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
                 "vocab_size": 100, "scale_attn_by_inverse_layer_idx": False},
    }
    for name, row in rows.items():
        write("config", name, compact(row))
    for name, row in later_configs():
        write("config", name, compact(row))


def later_configs():
    """Yields a config of each later family, with the keys that only this family reads."""
    size = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    yarn = {"rope_type": "yarn", "rope_theta": 1e3, "factor": 8.0, "original_max_position_embeddings": 16}
    ministral = dict(size, model_type="ministral3", head_dim=16, rope_parameters=dict(
        yarn, mscale=1.0, mscale_all_dim=0.5, llama_4_scaling_beta=0.5))
    yield "ministral3", ministral
    yield "mistral3", {"model_type": "mistral3", "text_config": ministral, "vision_config": {"model_type": "pixtral"},
                       "spatial_merge_size": 2, "tie_word_embeddings": False}
    yield "phi3", dict(size, model_type="phi3", partial_rotary_factor=0.75, original_max_position_embeddings=16,
                       rope_scaling={"type": "su", "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.5, 3.0, 7.0]})
    yield "olmo2", dict(size, model_type="olmo2", rope_theta=5e5, attention_bias=True)
    yield "olmo3", dict(size, model_type="olmo3", sliding_window=8, layer_types=kinds, rope_parameters={
        "full_attention": dict(yarn, attention_factor=1.2), "sliding_attention": {"rope_type": "default"},
        "truncate": False})
    yield "smollm3", dict(size, model_type="smollm3", no_rope_layers=[1, 0, 1, 1], no_rope_layer_interval=3,
                          use_sliding_window=True, sliding_window=8, mlp_bias=True)
    yield "granite", dict(size, model_type="granite", attention_multiplier=0.1, embedding_multiplier=12.0,
                          residual_multiplier=0.22, logits_scaling=8.0)
    yield "glm4", dict(size, model_type="glm4", head_dim=16, rope_parameters={"partial_rotary_factor": 0.5})
    yield "cohere2", dict(size, model_type="cohere2", layer_norm_eps=1e-5, logit_scale=0.25, sliding_window=8,
                          sliding_window_pattern=3, rotary_pct=1.0, use_qk_norm=False)


# ---- Templates ----

TEMPLATES = {
    "chatml": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message.content "
              "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
              "{% endif %}",
    "system": "{{- bos_token }}\n{%- if messages[0].role == 'system' %}\n    {%- set system = "
              "messages[0]['content'] | trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    "
              "{%- set system = '' %}\n{%- endif %}\n{{- system }}\n{%- for m in messages %}\n    {%- if "
              "(m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles must alternate') }}"
              "{%- endif %}\n{{- '[' ~ loop.index ~ '/' ~ loop.length ~ ']' ~ m.content }}\n{%- endfor %}",
    "tools": "{%- if tools is defined and tools is not none %}{%- for tool in tools %}{{ tool | tojson(indent=2) }}"
             "{{ tool.function.parameters | items | list | length }}{%- endfor %}{%- endif %}"
             "{%- for m in messages %}{%- if m.tool_calls is defined and m.tool_calls %}{%- for c in m.tool_calls "
             "%}{%- set f = c.function if c.function is mapping else {} %}{{ f.name }}({{ f.arguments | tojson }})"
             "{%- endfor %}{%- elif m.content is string %}{{ m.content }}{%- elif m.content %}{%- for p in "
             "m.content if p.type == 'text' %}{{ p.text }}{%- endfor %}{%- endif %}{%- endfor %}",
    "macros": "{%- macro show(x, deep=false) -%}{%- if x is mapping -%}{%- for k, v in x.items() -%}{{ k }}="
              "{{ show(v, deep=true) }},{%- endfor -%}{%- elif x is iterable and x is not string -%}[{{ x | "
              "map('string') | join(', ') }}]{%- else -%}{{ x | default('none', true) }}{%- endif -%}"
              "{%- endmacro -%}{{ show(messages[0]) }}{{ show([1, 2.5, true, none]) }}{% call(y) show(1) %}a{% endcall %}",
    "think": "{%- set ns = namespace(last=none, multi=true) %}{%- for m in messages[::-1] %}{%- set i = "
             "(messages|length - 1) - loop.index0 %}{%- if ns.multi and m.role == 'user' and not "
             "(m.content is string and m.content.startswith('<tool>')) %}{%- set ns.multi = false %}"
             "{%- set ns.last = i %}{%- endif %}{%- endfor %}{%- for m in messages %}{%- set content = m.content "
             "or '' %}{%- if content is string and '</think>' in content %}{{ "
             "content.split('</think>')[-1].lstrip('\\n') }}{%- else %}{{ content }}{%- endif %}{%- endfor %}"
             "{{ ns.last }}",
    "strings": "{{ 'aXb'.upper() ~ 'AbC'|lower ~ 'ab cd'|title ~ 'ab'|capitalize ~ ' x '|trim ~ 'a,b'.split(',')[1] "
               "~ 'aa'.replace('a', 'b') ~ 'abc'[::-1] ~ 'abc'[1:] ~ '%s-%d' % ('x', 3) ~ "
               "'{}'.format(1) ~ ['b','a']|sort|join('-') ~ 'x'.find('x') ~ 'ab'|first ~ 'ab'|last ~ "
               "'a\\u00e9'|length ~ 'x'|indent(2) ~ '<'|e ~ 'x'*3 }}",
    "filters": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | join }}"
               "{{ messages | rejectattr('role', '==', 'user') | list | count }}{{ [3,1,2] | sort(reverse=true) }}"
               "{{ [1,1,2] | unique | list }}{{ {'b': 1, 'a': 2} | dictsort }}{{ [1,2,3] | sum }}{{ -3 | abs }}"
               "{{ 3.7 | int + '4' | float }}{{ 2.567 | round(2) }}{{ range(1, 10, 3) | list }}"
               "{{ [1,2,3,4] | batch(2) | list }}{{ [1,2] | min }}{{ 'a' | string is string }}",
    "maths": "{{ 7 // 2 }}{{ -7 % 3 }}{{ 2 ** 10 }}{{ 1 / 3 }}{{ 1e3 }}{{ 0.1 + 0.2 }}{{ 3 > 2 > 1 }}{{ not 1 in [2] }}"
             "{{ 1 if 0 else 2 }}{{ [1] + [2] }}{{ (1, 2) }}{{ {'a': [none, true]} }}{{ 5 is odd }}{{ 6 is divisibleby 3 }}",
    "blocks": "{# note #}\n  {% set x %}a{{ 1 }}b{% endset %}{{ x }}{% filter upper %}text{% endfilter %}"
              "{% generation %}z{% endgeneration %}{% raw %}{{ x }}{% endraw %}{% for i in range(5) %}"
              "{% if i == 1 %}{% continue %}{% elif i > 3 %}{% break %}{% endif %}{{ loop.first }}{{ loop.last }}"
              "{{ loop.cycle('a', 'b') }}{{ loop.previtem }}{% else %}none{% endfor %}"
              "{% set a, b = 1, 2 %}{{ b }}{{ strftime_now('%d %B %Y') }}",
}


# ---- Texts and graphs ----

TEXTS = ["Hello, world's  12345 low\n\n\ttext", "<|end|>[x]<s> </s><unk> <0x0A>", "aaaaaaaaaaaaaaaaaaaaaaaa",
         "e\u0301\u00e9 \u4f60\u597d \U0001f600 \u2581\u2581low \u0663\u0664 \u01c5", b"\xff\xc3(\xe2\x82\xf0\x9f\x98",
         "I'LL can't  \r\n  x \u00a0\u3000end   "]

GRAPH = """weft-graph 1
streams 1
# a note
%0 = input("x") type=f32 dims=[2,3] -> f32[2,3]
%1 = state("w") type=f32 dims=[4,3] -> f32[4,3]
%2 = linear(%0, %1) -> f32[2,4] block
%3 = top_k(%2) k=2 -> f32[2,2], i32[2,2]
%4 = backward scale(%3) factor=0.5 -> f32[2,2]
output "best \\x41" = %3.1
output "s" = %4
end
"""


# ---- log.jsonl ----

def record(event, step, **more):
    return compact(dict(event=event, step=step, **more)) + "\n"


def step(n, loss, **more):
    return record("step", n, steps=100, loss=loss, norm=1.5, rate=3e-4, seconds=0.25, tokens_per_second=4096.0,
                  tokens=1024 * n, skipped=0, memory=1 << 20, applied=True, **more)


def make_histories():
    run = record("start", 0) + "".join(step(n, 8 / n + 2) for n in range(1, 21))
    write("history", "run", run + record("valid", 20, loss=2.5, bits_per_byte=1.2) + record("sample", 20, text="a\nb"))
    write("history", "resumed", run + '{"event":"step","st\n' + record("resume", 10) + step(11, 2.7) + step(12, 2.6))
    write("history", "again", run + record("start", 0) + step(1, 9.0) + '{"event":"ste')
    write("history", "back", step(5, 3.0) + step(3, 3.1) + step(3, 3.2) + record("valid", 9, loss=None))
    write("history", "numbers", step(1, 1e308) + step(2, -1e29) + step(3, 5e-324) + step(4, None) + step(5, 0)
          + record("step", 1 << 62, loss=1e-31, tokens=(1 << 63) - 1, seconds=1e300, rate=-1e25, skipped=1 << 40)
          + record("step", -1) + record("step", 1.5) + record("valid", 0, loss=1e30))
    write("history", "garbage", "\n\n[]\nnull\n\xff\n{}\n" + record("later", 3) + compact({"event": 3, "step": 1}) + "\n")
    write("history", "equal", "".join(step(7 * n, 3.25) for n in range(1, 4)))


# ---- shards ----

def shard(ids, starts, width, vocab, mask=None):
    """Without checksums: the target fills them in."""
    data = struct.pack("<%d%s" % (len(ids), "H" if width == 2 else "I"), *ids)
    data += bytes(-len(data) % 8)
    at = 128 + len(data)
    data += struct.pack("<%dQ" % len(starts), *starts)
    mask_at = 0
    if mask is not None:
        mask_at = 128 + len(data)
        bits = bytearray((len(ids) + 7) // 8)
        for i in mask:
            bits[i // 8] |= 1 << i % 8
        data += bytes(bits)
    counted = len(ids) if mask is None else len(mask)
    head = b"WEFTDATA" + struct.pack("<IIQQQQQQ", 1, width, vocab, len(ids), len(starts) - 1, 3 * len(ids), counted,
                                     mask is not None)
    head += struct.pack("<QQQQ", 128, at, mask_at, 128 + len(data))
    return head + bytes(32) + data


def make_shards():
    write("shard", "narrow", shard([1, 2, 3, 0, 9, 0], [0, 4, 6], 2, 10))
    write("shard", "wide", shard([1, 70000, 3], [0, 1, 2, 3], 4, 70001))
    write("shard", "masked", shard(list(range(20)), [0, 5, 20], 2, 20, mask=[3, 4, 9, 19]))
    write("shard", "one", shard([0], [0, 1], 2, 1))
    write("shard", "id", shard([1, 10], [0, 2], 2, 10))
    write("shard", "starts", shard([1, 2, 3], [0, 2, 2, 3], 2, 10))
    write("shard", "header", shard([1], [0, 1], 2, 10)[:127])


def main():
    make_histories()
    for name, value_ in tokenizers():
        write("tokenizer", name, compact(value_))
        if name in ("gpt2", "pieces"):
            write("tokenizer", name + "-config", compact(value_) + "\0" + compact(CONFIG))
    make_gguf()
    make_imatrix()
    make_caches()
    make_safetensors()
    make_shards()
    make_configs()
    for name, body in TEMPLATES.items():
        write("template", name, body)
    for i, body in enumerate(TEXTS):
        for kind in range(7):
            body = body.encode() if isinstance(body, str) else body
            write("text", "%d-%d" % (i, kind), bytes([kind]) + body)
    write("graph", "small", GRAPH)
    write("json", "kinds", '{"a": [1, -2.5e3, true, false, null, "x\\u00e9\\ud83d\\ude00\\n"], "b": {"": {}, "c": []}}')
    write("json", "numbers", "[0, -0, 1e308, 9223372036854775807, 9223372036854775808, 0.1, 5e-324]")
    write("json", "many", compact({"k%d" % i: i for i in range(40)}))
    write("json", "deep", "[" * 60 + "]" * 60)
    write("json", "too-deep", "[" * 200 + "]" * 200)


main()
