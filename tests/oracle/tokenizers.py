#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/tokenizers.py TOOL [TEXTS [SEED]]

Trains tokenizers with the package `tokenizers`, saves them, and compares the ids of random texts by
the package and by TOOL (tests/tools/tokenize.c). Exits 77, with a message, without the package.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

sys.path.pop(0)  # this file has the name of the package
try:
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                            processors, trainers)
except ImportError:
    print("skipped: python has no package tokenizers (tools/fetch_python.sh brings it)")
    sys.exit(77)

SPECIAL, CONTROL = 1, 2
# Trained on these, the package merges plain text into special tokens, which Weft never does.
MARKUP = ["<|end|>", "<|start|>", "<s>", "</s>", "[user]", "<|en", "d|>", "<0x0A>", "king", "</"]
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
RICH = SHORT + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def random_char(rng, low, high):
    while True:
        c = rng.randint(low, high)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def random_piece(rng, words, marks, special):
    """A piece of text that is hard to split."""
    kinds = [
        lambda: rng.choice(words),
        lambda: " " + rng.choice(words),
        lambda: rng.choice([" ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u3000", "\u2028", "\x85", "\u180e",
                            "\u200b", "\x0b", "\x1c"]) * rng.randint(1, 5),
        lambda: str(rng.randint(0, 10 ** rng.randint(1, 9))),
        lambda: rng.choice(["'s", "'T", "'re", "'LL", "'\u017f", "'x", "it's", "''d", "I'VE"]),
        lambda: "".join(random_char(rng, 0x20, 0x7E) for _ in range(rng.randint(1, 6))),
        lambda: "".join(random_char(rng, 0xA0, 0x2FF) for _ in range(rng.randint(1, 4))),
        lambda: "".join(rng.choice("aeoAn\u0915\u1100\u1161\u11a8\uac00") + rng.choice(marks)
                        for _ in range(rng.randint(1, 4))),
        lambda: "".join(random_char(rng, 0x4E00, 0x9FFF) for _ in range(rng.randint(1, 4))),
        lambda: rng.choice(["\U0001F600", "\U0001F469\u200d\U0001F680", "\u2764\ufe0f", "\U0001F1E9\U0001F1EA"]),
        lambda: random_char(rng, 0, 0xFFFF),
        lambda: random_char(rng, 0, 0x10FFFF),
        lambda: rng.choice(["\u00bd", "\u00b2", "\u0664", "\u2167", "\u3007", "\U0001D7D8"]),
        lambda: rng.choice(special),
        lambda: rng.choice(["...", "!!!", "://", "->", "//", "\u3002\u3002", "\ufffd"]),
    ]
    return rng.choice(kinds)()


def byte_level(split, **model):
    t = Tokenizer(models.BPE(**model))
    if split:
        t.pre_tokenizer = pre_tokenizers.Sequence(
            split + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return t, pre_tokenizers.ByteLevel.alphabet()


def pattern(text):
    return [pre_tokenizers.Split(Regex(text), "isolated")]


def gpt2():
    return byte_level(None)


def prefixed():
    t, alphabet = byte_level(None)
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return t, alphabet


def llama3():
    return byte_level(pattern(RICH % r"\p{N}{1,3}"), ignore_merges=True)


def qwen2():
    t, alphabet = byte_level(pattern(RICH % r"\p{N}"))
    t.normalizer = normalizers.NFC()
    return t, alphabet


def smollm():
    t, alphabet = byte_level(None)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return t, alphabet


def falcon():
    t, alphabet = byte_level(None)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(behavior="contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
         pre_tokenizers.Digits(individual_digits=False),
         pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return t, alphabet


def cased():
    return byte_level(pattern(CASED))


def merged(behavior):
    def make():
        return byte_level([pre_tokenizers.Split(" ", behavior), pre_tokenizers.Split(Regex(r"\d"), "isolated")])
    return make


def pieces(normalizer, words, decoder):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, words, decoder
    return t, ["<0x%02X>" % i for i in range(256)]


def llama2():
    return pieces(
        normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None,
        decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                           decoders.Strip(" ", 1, 0)]))


def metaspace(scheme, split):
    def make():
        return pieces(None, pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split),
                      decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]))
    return make


def unknowns():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    t.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return t, []


KINDS = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "smollm": smollm, "prefixed": prefixed,
         "falcon": falcon, "cased": cased, "previous": merged("merged_with_previous"),
         "next": merged("merged_with_next"), "contiguous": merged("contiguous"), "llama2": llama2,
         "metaspace_first": metaspace("first", True), "metaspace_always": metaspace("always", False),
         "metaspace_never": metaspace("never", True), "unknowns": unknowns}


def train(kind, make, corpus):
    t, alphabet = make()
    fallback = bool(alphabet) and alphabet[0] == "<0x00>" if isinstance(alphabet, list) else False
    special = ["<unk>", "<s>", "</s>", "<|end|>", "<|start|>"]
    trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False,
                                  special_tokens=special + (alphabet if fallback else []),
                                  initial_alphabet=[] if isinstance(alphabet, list) else alphabet,
                                  limit_alphabet=80 if fallback or kind == "unknowns" else 1000)
    t.train_from_iterator(corpus, trainer)
    t.add_tokens([AddedToken("[user]", lstrip=True, rstrip=True, normalized=False),
                  AddedToken("king", single_word=True, normalized=False)])
    bos = t.token_to_id("<s>")
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return t


# Splitters that use PCRE2, whose classes may be those of Unicode 14 (Debian 12 has 10.42). A newer
# letter is not a letter there, so their texts have no newer characters.
THROUGH_PCRE2 = {"cased", "falcon", "previous", "next", "contiguous"}
ADDED_TO_BMP = set("\u0897\u0cf3\u0ece\u1b4e\u1b4f\u1b7f\u1c89\u1c8a\u2427\u2428\u2429\u2ffc\u2ffd\u2ffe\u2fff"
                   "\u31e4\u31e5\u31ef\ua7cb\ua7cc\ua7cd\ua7ce\ua7cf\ua7d2\ua7d4\ua7da\ua7db\ua7dc\ua7f1")


def is_old(c):
    if unicodedata.category(c) == "Cn" or c in ADDED_TO_BMP:
        return False
    return unicodedata.unidata_version == "14.0.0" or ord(c) < 0x10000 or 0x1F000 <= ord(c) <= 0x1F6D7


def frame(texts):
    return b"".join(struct.pack("=I", len(text)) + text for text in texts)


def answers(tool, path, flags, texts):
    out = subprocess.run([tool, path, str(flags)], input=frame(texts), stdout=subprocess.PIPE, check=True).stdout
    at, results = 0, []
    for _ in texts:
        pair = []
        for _ in range(2):
            (length,) = struct.unpack_from("=I", out, at)
            pair.append(out[at + 4:at + 4 + length])
            at += 4 + length
        results.append((list(struct.unpack("=%dI" % (len(pair[0]) // 4), pair[0])), pair[1].decode("utf-8")))
    return results


def compare(tool, kind, t, folder, texts):
    path = os.path.join(folder, kind + ".json")
    # The trainer's byte tokens become ordinary tokens, as in real files.
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    with open(path, "w", encoding="utf-8") as out:
        json.dump(data, out)
    t = Tokenizer.from_file(path)
    raw, wrong = [text.encode("utf-8") for text in texts], 0
    for flags in (0, SPECIAL | CONTROL):
        t.encode_special_tokens = not flags & CONTROL
        for text, (ids, back) in zip(texts, answers(tool, path, flags, raw)):
            want = t.encode(text, add_special_tokens=bool(flags & SPECIAL)).ids
            want_back = t.decode(want, skip_special_tokens=not flags & CONTROL)
            if ids == want and back == want_back:
                continue
            wrong += 1
            if wrong <= 3:
                print("%s, flags %d, %r:\n  weft %s %r\n  want %s %r" % (kind, flags, text, ids, back, want, want_back))
    print("%s: %d texts, %d differ" % (kind, 2 * len(texts), wrong))
    return wrong


def main():
    tool = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(2 ** 32)
    print("seed %d" % seed)
    rng = random.Random(seed)
    marks = [chr(c) for c in range(0x300, 0x360) if unicodedata.combining(chr(c))] + ["\u093c", "\u05bc", "\u3099"]
    shakespeare = os.path.join(os.path.dirname(__file__), "../../../shared/data/tinyshakespeare.txt")
    try:
        text = open(shakespeare, encoding="utf-8").read(200000)
    except OSError:
        text = open(os.path.join(os.path.dirname(__file__), "../../README.md"), encoding="utf-8").read()
    words = sorted(set(text.split()))
    corpus = text.splitlines(True) + [
        "".join(random_piece(rng, words, marks, ["\u2581"]) for _ in range(8)) for _ in range(2000)]
    texts = ["", " ", "\n"] + [
        "".join(random_piece(rng, words, marks, MARKUP) for _ in range(rng.randint(1, 20))) for _ in range(count)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, make in KINDS.items():
            own = texts
            if kind in THROUGH_PCRE2:
                own = ["".join(c for c in text if is_old(c)) for text in texts]
            wrong += compare(tool, kind, train(kind, make, corpus), folder, own)
    sys.exit(1 if wrong else 0)


main()
