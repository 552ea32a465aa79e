#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Compares the chat templates of Weft with jinja2: templates.py PROGRAM, which is
build/tests/tools/render_templates.

Both must render the same text, or both must fail. WEFT_SEED sets the seed of the random templates,
WEFT_ORACLE_RANDOM their number. Exits 77, with a message, without jinja2.
"""
import glob
import json
import os
import random
import re
import subprocess
import sys
import warnings

try:
    import jinja_reference as reference
except ImportError as missing:
    print(f"skipped: {missing} (install python3-jinja2)")
    sys.exit(77)
import template_cases as cases

# Output of jinja2's own objects, or in an unspecified order: not comparable.
OPAQUE = re.compile(r"<(generator|list_reverse|reversed|bound|built-in|function|Macro|dict_|class|method|str_|map|range_|tuple)|object at 0x|LoopContext", re.IGNORECASE)
# jinja2's iterators as strings, which contain addresses.
ADDRESS = re.compile(r"\|(reverse|map|select|reject|batch|slice|items)(\([^)]*\))?\|(lower|upper|title|capitalize|string|trim|replace|indent|escape|center|format|wordcount)")

warnings.simplefilter("ignore")  # about nonsensical templates


def jobs(seed):
    """Yields (name, template, variables, whether lists may change)."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "templates")
    files = sorted(glob.glob(os.path.join(root, "*.jinja")))
    assert files, "no templates to compare"
    for path in files:
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        for messages in cases.CONVERSATIONS:
            for extra in cases.EXTRAS:
                yield os.path.basename(path), text, {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", **extra}, False
    for text in cases.split(cases.EXPRESSIONS):
        yield "expression", text, cases.VARIABLES, False
    for text in cases.split(cases.CHANGING):
        yield "changing", text, cases.VARIABLES, True
    rng = random.Random(seed)
    for _ in range(int(os.environ.get("WEFT_ORACLE_RANDOM", "300"))):
        text = cases.random_template(rng)
        if not ADDRESS.search(text):
            yield "random", text, cases.VARIABLES, False


def from_model(path):
    """The template of a GGUF model, if the model was fetched."""
    with open(path, "rb") as f:
        head = f.read(16 << 20)
    at = head.index(b"tokenizer.chat_template") + len("tokenizer.chat_template") + 4  # its type, a string
    length = int.from_bytes(head[at:at + 8], "little")
    text = head[at + 8:at + 8 + length].decode()
    for messages in cases.CONVERSATIONS:
        for extra in cases.EXTRAS:
            yield "model", text, {"messages": messages, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", **extra}, False


def agrees(want, error, got):
    if error is not None:
        return "error" in got
    if OPAQUE.search(want):
        return True
    return got.get("text") == want and len(got["plain"]) == len(want.encode())


def main():
    seed = int(os.environ.get("WEFT_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    work = list(jobs(seed))
    model = os.environ.get("WEFT_TEST_SMOLLM2")
    if model and os.path.exists(model):
        work += from_model(model)
    else:
        print("the template of SmolLM2 is skipped: WEFT_TEST_SMOLLM2 names no file")
    lines = "".join(json.dumps({"template": t, "variables": v, "now": reference.NOW}) + "\n" for _, t, v, _ in work)
    run = subprocess.run([sys.argv[1]], input=lines.encode(), stdout=subprocess.PIPE, check=False)
    answers = run.stdout.decode().split("\n")[:-1]
    wrong = errors = 0
    if run.returncode != 0 or len(answers) != len(work):
        print(f"{sys.argv[1]} ended with {run.returncode} after {len(answers)} of {len(work)} templates:")
        print(repr(work[len(answers)][1]) if len(answers) < len(work) else "")
        return 1
    for (name, text, variables, mutable), answer in zip(work, answers):
        want, error = reference.render(text, variables, mutable)
        got = json.loads(answer)
        errors += error is not None
        # A random template may search a list in keys(): an error in Python, but a list in Weft.
        if name == "random" and ".keys()" in text and "unhashable type" in str(error):
            continue
        if not agrees(want, error, got):
            wrong += 1
            if wrong <= int(os.environ.get("WEFT_ORACLE_SHOW", "20")):
                print(f"{name}: {text if len(text) < 600 else json.dumps(variables)[:300]!r}\n  jinja2: {want!r} {error or ''}\n  weft:   "
                      f"{got.get('text')!r} {got.get('error', '')}")
    print(f"{len(work)} templates compared with jinja2, {errors} of them errors: {wrong} differ")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
