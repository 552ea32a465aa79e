#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/added_tokens.py TOOL [TOKENIZERS [SEED]]

Makes tokenizer.json files with random added tokens, and compares the ids of random texts by the
package `tokenizers` and by TOOL (tests/tools/tokenize.c). Exits 77, with a message, without the
package.

Weft differs from the package on purpose in one case. Merges of plain text (flag CONTROL not set)
may produce a special token; Weft then returns the two tokens of that merge. unmerge() converts the
package's ids accordingly. A special token of a single character or byte has no parts and stays.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.pop(0)  # tokenizers.py beside this file is not the package
try:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers, Regex
except ImportError:
    print("skipped: python has no package tokenizers (tools/fetch_python.sh brings it)")
    sys.exit(77)

CONTROL = 2
TEXTS = 60  # per tokenizer
RICH = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# Few letters, so that words, tokens and texts overlap; several kinds of spaces; characters that NFC
# composes.
LETTERS = ["a", "b", "c", "d", "<", ">", "|", "_", "1", "\u00e9", "e", "\u0301", "\u2581", "\U0001F600", "\u00c3"]
SPACES = [" ", "  ", "\n", "\t", "\u00a0", "\u3000"]


def byte_level(split, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    steps = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    t.pre_tokenizer = pre_tokenizers.Sequence(
        steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)])
    t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    return t, pre_tokenizers.ByteLevel.alphabet()


def pieces(normalizer, words):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer, t.pre_tokenizer = normalizer, words
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t, None


def spaces_replaced(*before):
    return normalizers.Sequence(list(before) + [normalizers.Replace(" ", "\u2581")])


KINDS = {
    "gpt2": lambda: byte_level(None),
    "llama3": lambda: byte_level(RICH % r"\p{N}{1,3}", ignore_merges=True),
    "qwen2": lambda: byte_level(RICH % r"\p{N}", normalizers.NFC()),
    "llama2": lambda: pieces(spaces_replaced(normalizers.Prepend("\u2581")), None),
    "gemma": lambda: pieces(spaces_replaced(), None),
    "metaspace": lambda: pieces(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=True)),
    "always": lambda: pieces(None, pre_tokenizers.Metaspace(prepend_scheme="always", split=False)),
}


def random_text(rng, most):
    return "".join(rng.choice(SPACES if rng.random() < 0.2 else LETTERS) for _ in range(rng.randint(1, most)))


def random_content(rng, vocab, others):
    """The text of a token: part of another token, an entry of the vocabulary, or new."""
    kind = rng.randrange(8)
    if kind == 0 and others:
        other = rng.choice(others)
        return other[:rng.randint(1, len(other))]
    if kind == 1 and others:
        return rng.choice(others) + rng.choice(LETTERS + SPACES)
    if kind == 2:
        return rng.choice(vocab)
    if kind == 3:
        return rng.choice(LETTERS)
    if kind == 4:
        return rng.choice(SPACES) * rng.randint(1, 2)
    return random_text(rng, 5)


def add_tokens(rng, data):
    vocab = data["model"]["vocab"]
    single = [v for v in vocab if not v.startswith("<0x")]
    contents, added = set(), []
    top = max(vocab.values())
    for _ in range(rng.randint(1, 12)):
        content = random_content(rng, single, sorted(contents))
        if content in contents or content == "<unk>":
            continue
        contents.add(content)
        if content not in vocab:
            top += 1
        chance = rng.choice([0.1, 0.5])
        added.append({"id": vocab.get(content, top), "content": content,
                      **{flag: rng.random() < chance for flag in ("single_word", "lstrip", "rstrip")},
                      "normalized": rng.random() < 0.5, "special": rng.random() < 0.5})
    if "<unk>" in vocab:
        added.append({"id": vocab["<unk>"], "content": "<unk>", "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False, "special": True})
    data["added_tokens"] = sorted(added, key=lambda a: a["id"])
    return [a["content"] for a in added]


def make(rng, kind):
    t, alphabet = KINDS[kind]()
    bytes_ = [] if alphabet else ["<0x%02X>" % i for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=alphabet or [],
                                  special_tokens=[] if alphabet else ["<unk>"] + bytes_)
    t.train_from_iterator([random_text(rng, 30) for _ in range(200)], trainer)
    data = json.loads(t.to_str())
    data["added_tokens"] = []
    return data, add_tokens(rng, data)


class Unmerge:
    """Replaces special tokens that merges produced by the two tokens of the merge."""

    def __init__(self, data):
        vocab = data["model"]["vocab"]
        self.special = {a["id"] for a in data["added_tokens"] if a["special"] and a["content"] in vocab}
        self.parts = {}
        for merge in data["model"]["merges"]:
            left, right = merge if isinstance(merge, list) else merge.split(" ")
            self.parts.setdefault(vocab[left + right], (vocab[left], vocab[right]))

    def __call__(self, ids):
        out = []
        for i in ids:
            out += self(self.parts[i]) if i in self.special and i in self.parts else [i]
        return out


def answers(tool, path, flags, texts):
    framed = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    out = subprocess.run([tool, path, str(flags)], input=framed, stdout=subprocess.PIPE, check=True).stdout
    at, results = 0, []
    for _ in texts:
        (length,) = struct.unpack_from("=I", out, at)
        results.append(list(struct.unpack_from("=%dI" % (length // 4), out, at + 4)))
        at += 4 + length
        at += 4 + struct.unpack_from("=I", out, at)[0]
    return results


def expected(t, text):
    try:
        return t.encode(text, add_special_tokens=False).ids
    except BaseException as error:  # the package panics when rstrip and lstrip consume the same space
        if "bad split" not in str(error):
            raise
        return None


def compare(tool, seed, folder):
    rng = random.Random(seed)
    kind = rng.choice(sorted(KINDS))
    data, contents = make(rng, kind)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(data, out)
    t = Tokenizer.from_str(json.dumps(data))
    texts = ["".join(rng.choice([rng.choice(contents), random_text(rng, 6), rng.choice(SPACES)])
                     for _ in range(rng.randint(1, 12))) for _ in range(TEXTS)]
    unmerge, wrong, done = Unmerge(data), 0, 0
    for flags in (0, CONTROL):
        t.encode_special_tokens = not flags & CONTROL
        for text, ids in zip(texts, answers(tool, path, flags, [text.encode("utf-8") for text in texts])):
            want = expected(t, text)
            if want is None:
                continue
            done += 1
            # A token that is matched as such has the same parts on both sides.
            if unmerge(ids) == unmerge(want) and (flags & CONTROL or not unmerge.special or ids == unmerge(want)):
                continue
            wrong += 1
            if wrong <= 2:
                print("seed %d, %s, flags %d, %r:\n  weft %s\n  want %s\n  added %s" %
                      (seed, kind, flags, text, ids, want, json.dumps(data["added_tokens"])))
    return done, wrong


def main():
    tool = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(2 ** 32)
    print("seed %d" % seed)
    done = wrong = 0
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # each panic of the package prints some lines
    try:
        with tempfile.TemporaryDirectory() as folder:
            for i in range(count):
                a, b = compare(tool, seed + i, folder)
                done, wrong = done + a, wrong + b
    finally:
        os.dup2(stderr, 2)
    print("%d tokenizers, %d texts, %d differ" % (count, done, wrong))
    sys.exit(1 if wrong else 0)


main()
