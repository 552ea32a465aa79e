#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/pieces.py TOOL [TOKENIZERS [SEED]]

Makes random WordPiece and Unigram tokenizers with random normalizers, pre-tokenizers and decoders, and compares
the ids and the decoded text of random texts by the package `tokenizers` and by TOOL (tests/tools/tokenize.c).
Then compares each normalizer on random characters. Exits 77, with a message, without the package.

Weft differs from the package on purpose in one case, which these texts do not have: text that spells a control
token or a byte token (<0x0A>) does not become it.
"""
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

sys.path.pop(0)  # tokenizers.py beside this file is not the package
try:
    from tokenizers import Tokenizer
except ImportError:
    print("skipped: python has no package tokenizers (tools/fetch_python.sh brings it)")
    sys.exit(77)

SPECIAL, CONTROL = 1, 2
TEXTS = 40  # per tokenizer
EVERY = int(os.environ.get("WEFT_CHARACTERS", "20000"))  # characters per normalizer; 0: all

# Characters that some step changes, joins or splits at.
LETTERS = list("abcdABCI019 .,!?'-$_") + [
    "\u00e9", "e", "\u0301", "\u0323", "\u0130", "\u1e9e", "\u03a3", "\ufb01", "\u2460", "\u33a1", "\uff21", "\uff76",
    "\uff9e", "\u304b", "\u3099", "\u4f60", "\u597d", "\U00020000", "\uac00", "\u1100", "\u1161", "\u11a8", "\u0915",
    "\u094d", "\u093e", "\u0600", "\u200d", "\u200b", "\u00a9", "\u2764", "\ufe0f", "\U0001F600", "\U0001F1E9", "\u2581",
    "\u00bd", "\u0345", "\ufffd", "\x00", "\x01", "\x7f", "\u00ad", "\ue000", "\u166d", "\u0903", "\u212b", "\u2126"]
SPACES = [" ", " ", "  ", "   ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b"]


def random_char(rng):
    while True:
        c = rng.choice([rng.randint(0, 0x7FF), rng.randint(0, 0xFFFF), rng.randint(0, 0x1FFFF)])
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def random_text(rng, most):
    def one():
        x = rng.random()
        return rng.choice(SPACES) if x < 0.15 else random_char(rng) if x < 0.2 else rng.choice(LETTERS)
    return "".join(one() for _ in range(rng.randint(1, most)))


# ---- Charsmaps ----

def double_array(keys):
    """A trie of the library Darts-clone. keys: value by bytes without NUL."""
    root = {}
    for key, value in keys.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units, todo, base = {0: 0}, [(0, root)], 1
    while todo:
        at, node = todo.pop()
        while any((base ^ c) in units for c in node):
            base += 1
        units[at] |= (at ^ base) << 10 | (0 in node) << 8
        for c, child in node.items():
            units[base ^ c] = child | 1 << 31 if c == 0 else c
            if c:
                todo.append((base ^ c, child))
    size = max(units) // 256 * 256 + 512
    return struct.pack("<%dI" % size, *[units.get(i, 0) for i in range(size)])


def charsmap(rules):
    keys, blob = {}, b""
    for key, value in rules.items():
        keys[key.encode()] = len(blob)
        blob += value.encode() + b"\0"
    trie = double_array(keys)
    return struct.pack("<I", len(trie)) + trie + (blob or b"\0")


def random_rules(rng):
    rules = {}
    for _ in range(rng.randint(1, 30)):
        key = "".join(rng.choice(LETTERS) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))).replace("\0", "")
        if key:
            rules[key] = "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 3))).replace("\0", "")
    for c in LETTERS:  # as NFKC, which the rules of real models are
        normal = unicodedata.normalize("NFKC", c)
        if normal != c and rng.random() < 0.5:
            rules[c] = normal
    return rules or {"A": "a"}


# ---- Pipelines ----

def precompiled(rng):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(random_rules(rng))).decode()}


def bert(rng):
    return {"type": "BertNormalizer", "clean_text": rng.random() < 0.7, "handle_chinese_chars": rng.random() < 0.7,
            "strip_accents": rng.choice([None, True, False]), "lowercase": rng.random() < 0.6}


def random_normalizer(rng):
    steps = [lambda: {"type": rng.choice(["NFC", "NFD", "NFKC", "NFKD"])}, lambda: {"type": "Lowercase"},
             lambda: {"type": "StripAccents"}, lambda: {"type": "Nmt"}, lambda: bert(rng), lambda: precompiled(rng),
             lambda: {"type": "Strip", "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5},
             lambda: {"type": "Prepend", "prepend": "\u2581"},
             lambda: {"type": "Replace", "pattern": {"Regex": rng.choice([" {2,}", " +", "\\A +| +\\z"])},
                      "content": rng.choice([" ", "\u2581", ""])},
             lambda: {"type": "Replace", "pattern": {"String": rng.choice([" ", "a", "``"])}, "content": "\u2581"}]
    chosen = [rng.choice(steps)() for _ in range(rng.choice([0, 1, 1, 2, 3, 4]))]
    return {"type": "Sequence", "normalizers": chosen} if len(chosen) > 1 else chosen[0] if chosen else None


def metaspace(rng, schemes):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": rng.choice(schemes),
            "split": rng.random() < 0.7}


def random_words(rng, unchanged):
    """"first" asks for an offset in the text before the normalizer, which Weft does not know."""
    schemes = ("always", "first", "never") if unchanged else ("always", "never")
    return rng.choice([
        lambda: None, lambda: {"type": "BertPreTokenizer"}, lambda: {"type": "WhitespaceSplit"},
        lambda: {"type": "Whitespace"}, lambda: {"type": "CharDelimiterSplit", "delimiter": rng.choice(" a\u2581")},
        lambda: metaspace(rng, schemes),
        lambda: {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace(rng, schemes)]},
        lambda: {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                       {"type": "BertPreTokenizer"}]}])()


def random_decoder(rng, prefix):
    return rng.choice([
        lambda: None, lambda: {"type": "WordPiece", "prefix": prefix, "cleanup": rng.random() < 0.7},
        lambda: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": rng.choice(["always", "never"]),
                 "split": True},
        lambda: {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}])()


# ---- Models ----

def chunks(rng, text, most):
    for _ in range(most if text else 0):
        at = rng.randrange(len(text))
        yield text[at:at + rng.choice([1, 1, 2, 2, 3, 4, 6])]


def random_wordpiece(rng, normal):
    prefix = rng.choice(["##", "##", "", "\u2581", "@@"])
    vocab = {"[UNK]": 0, "[CLS]": 1}
    for chunk in chunks(rng, normal, rng.choice([20, 200, 600])):
        vocab.setdefault(prefix * rng.randint(0, 1) + chunk, len(vocab))
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": rng.choice([100, 100, 3, 10]), "vocab": vocab}, prefix


def random_unigram(rng, normal):
    few = [-1.0, -2.0, -2.5, -3.0, 0.0]  # with ties
    # Few digits: the package reads longer numbers with an error of one bit, which decides ties.
    score = rng.choice([lambda: rng.choice(few), lambda: round(-rng.random() * 12, 6), lambda: round(rng.random() - 0.5, 6)])
    vocab, seen = [["<unk>", 0.0], ["</s>", rng.choice([0.0, -20.0])]], {"<unk>", "</s>"}
    fallback = rng.random() < 0.5
    if fallback:
        some = range(256) if rng.random() < 0.7 else rng.sample(range(256), 180)
        vocab += [["<0x%02X>" % b, 0.0] for b in some]
    for chunk in chunks(rng, normal, rng.choice([20, 200, 600])):
        if chunk not in seen or rng.random() < 0.02:  # rarely twice: the last one counts
            vocab.append([chunk, score()])
        seen.add(chunk)
    vocab[0], vocab[1] = vocab[1], vocab[0]
    return {"type": "Unigram", "unk_id": 1, "byte_fallback": fallback, "vocab": vocab}, "\u2581"


def make(rng):
    normalizer = random_normalizer(rng)
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None,
            "normalizer": normalizer, "pre_tokenizer": random_words(rng, not normalizer), "decoder": None,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0}}}
    plain = Tokenizer.from_str(json.dumps(data))
    normal = random_text(rng, 300)
    if plain.normalizer:
        normal = plain.normalizer.normalize_str(normal)
    if rng.random() < 0.7:
        normal = normal.replace(" ", "\u2581")
    data["model"], prefix = rng.choice([random_wordpiece, random_unigram])(rng, normal)
    data["decoder"] = random_decoder(rng, prefix)
    if rng.random() < 0.7:
        names = ["[UNK]", "[CLS]"] if data["model"]["type"] == "WordPiece" else ["</s>", "<unk>"]
        data["added_tokens"] = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                                 "normalized": False, "special": True} for i, name in enumerate(names)]
    return data, normal


# ---- Comparing ----

def answers(tool, path, flags, texts):
    frame = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    out = subprocess.run([tool, path, str(flags)], input=frame, stdout=subprocess.PIPE, check=True).stdout
    at, results = 0, []
    for _ in texts:
        pair = []
        for _ in range(2):
            (length,) = struct.unpack_from("=I", out, at)
            pair.append(out[at + 4:at + 4 + length])
            at += 4 + length
        results.append((list(struct.unpack("=%dI" % (len(pair[0]) // 4), pair[0])), pair[1].decode("utf-8")))
    return results


def compare(tool, folder, data, texts, what):
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(data, out)
    t, wrong = Tokenizer.from_str(json.dumps(data)), 0
    raw = [text.encode("utf-8") for text in texts]
    for flags in (0, CONTROL):
        t.encode_special_tokens = not flags & CONTROL
        for text, (ids, back) in zip(texts, answers(tool, path, flags, raw)):
            want = t.encode(text, add_special_tokens=False).ids
            want_back = t.decode(want, skip_special_tokens=not flags & CONTROL)
            if ids == want and back == want_back:
                continue
            wrong += 1
            if wrong <= 2:
                print("%s, flags %d, %r:\n  weft %s %r\n  want %s %r" % (what, flags, text, ids, back, want, want_back))
    if wrong:
        print("%s: %s" % (what, json.dumps({k: v for k, v in data.items() if k != "model"})))
    return wrong


def every_character(tool, folder, rng, normalizer):
    """Byte tokens show the normalized text exactly."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    if EVERY:
        points = rng.sample(points, EVERY // 2) + rng.sample(range(0xD800), EVERY // 2)
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None,
            "normalizer": normalizer, "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
                      "vocab": [["<unk>", 0.0]] + [["<0x%02X>" % b, -1.0] for b in range(256)]}}
    texts = ["|".join(chr(c) for c in points[i:i + 50]) for i in range(0, len(points), 50)]
    texts += ["".join(rng.choice([chr(c), rng.choice(LETTERS)]) for c in points[i:i + 50])
              for i in range(0, len(points), 50)]
    return compare(tool, folder, data, texts, json.dumps(normalizer)[:100])


def main():
    tool = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(2 ** 32)
    print("seed %d" % seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            rng = random.Random(seed + i)
            data, normal = make(rng)
            texts = ["", " ", normal] + [random_text(rng, 40) for _ in range(TEXTS)]
            wrong += compare(tool, folder, data, texts, "seed %d, %s" % (seed + i, data["model"]["type"]))
        rng = random.Random(seed)
        shapes = [{"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")]
        shapes += [{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                    "lowercase": True}, precompiled(rng)]
        for normalizer in shapes:
            wrong += every_character(tool, folder, rng, normalizer)
    print("%d tokenizers, %d normalizers: %d texts differ" % (count, len(shapes), wrong))
    sys.exit(1 if wrong else 0)


main()
