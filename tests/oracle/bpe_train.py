#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/bpe_train.py PROGRAM [SEED]

Trains tokenizers on the same texts with the package `tokenizers` and with PROGRAM tokenize --train,
and compares vocabularies and merges. Exits 77, with a message, without the package.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.pop(0)  # a file beside this one has the name of the package
try:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
except ImportError:
    print("skipped: python has no package tokenizers (tools/fetch_python.sh brings it)")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
SHAKESPEARE = os.path.join(ROOT, "../shared/data/tinyshakespeare.txt")
RICH = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLITS = {"gpt2": None, "llama3": RICH % r"\p{N}{1,3}", "qwen2": RICH % r"\p{N}"}
SPECIAL = ["<|endoftext|>", "<|im_start|>"]


def reference(split, texts, vocab, minimum):
    t = Tokenizer(models.BPE())
    if split == "qwen2":
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if SPLITS[split]:
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(SPLITS[split]), "isolated"),
             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=vocab, min_frequency=minimum, show_progress=False,
                                  special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(texts, trainer)
    return json.loads(t.to_str())


def ours(program, split, texts, vocab, minimum, folder):
    paths = []
    for i, text in enumerate(texts):
        paths.append(os.path.join(folder, "text%d" % i))
        with open(paths[-1], "w", encoding="utf-8", newline="") as out:
            out.write(text)
    special = [word for token in SPECIAL for word in ("--special-token", token)]
    subprocess.run([program, "tokenize", "-q", "--train", "--overwrite", "-o", folder, "--vocab", str(vocab), "--split", split,
                    "--min-count", str(minimum)] + special + paths, check=True)
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        return json.load(file)


def random_text(rng, size):
    """Runs of few distinct characters, for many ties and overlaps; normalization changes some."""
    alphabets = ["a", "ab", "abc ", "ab\n ", "a1 2", "e\u0301o\u0308 ", "\u4e00\u3002 ", "'sd ", "!?\r\n a", "\u1100\u1161\u11a8",
                 "\U0001F600 x", "\u00a0\t a"]
    parts = []
    length = 0
    while length < size:
        parts.append("".join(rng.choices(rng.choice(alphabets), k=rng.randint(1, 40))))
        length += len(parts[-1])
    return "".join(parts)


def compare(program, name, split, texts, vocab, minimum):
    began = time.time()
    want = reference(split, texts, vocab, minimum)
    middle = time.time()
    with tempfile.TemporaryDirectory() as folder:
        got = ours(program, split, texts, vocab, minimum, folder)
    print("%s, %s, vocab %d, minimum %d: %d merges; package %.2f s, weft %.2f s" % (
        name, split, vocab, minimum, len(want["model"]["merges"]), middle - began, time.time() - middle))
    if got["model"]["vocab"] == want["model"]["vocab"] and got["model"]["merges"] == want["model"]["merges"]:
        return 0
    for i, (a, b) in enumerate(zip(got["model"]["merges"], want["model"]["merges"])):
        if a != b:
            print("  merge %d: weft %r, want %r" % (i, a, b))
            break
    else:
        print("  weft has %d merges and %d tokens, want %d and %d" % (
            len(got["model"]["merges"]), len(got["model"]["vocab"]), len(want["model"]["merges"]),
            len(want["model"]["vocab"])))
    return 1


def main():
    program = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2 ** 32)
    print("seed %d" % seed)
    rng = random.Random(seed)
    try:
        text = open(SHAKESPEARE, encoding="utf-8", newline="").read()
    except OSError:
        print("there is no tinyshakespeare.txt: CONTRIBUTING.md and README.md in its place")
        text = "".join(open(os.path.join(ROOT, name), encoding="utf-8").read()
                       for name in ("CONTRIBUTING.md", "README.md"))
    wrong = 0
    for split in SPLITS:
        wrong += compare(program, "shakespeare", split, [text], 1000, 2)
        wrong += compare(program, "random", split, [random_text(rng, 20000) for _ in range(3)], 3000, 1)
        wrong += compare(program, "random", split, [random_text(rng, 600000)], 700, 3)
    wrong += compare(program, "shakespeare", "gpt2", [text[:len(text) // 2], text[len(text) // 2:]], 8192, 2)
    sys.exit(1 if wrong else 0)


main()
