#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/checkpoints.py TOOL [--count N] [--seconds S] [--seed SEED] [--judge numpy|transformers]
                                   [--only checkpoints|keys|mutations|judges] [--families NAME,...]
                                   [--keep FOLDER]

Writes random checkpoints of every family that Weft loads, as Hugging Face folders, and compares the
results of TOOL (tests/tools/logits.c) with a judge: logits within a tolerance, and greedy tokens.

  checkpoints   random legal configs; also after conversion to GGUF and back to a folder
  keys          one key of config.json changed at a time: the judge's logits, or a refusal that
                names the key
  mutations     one file of a folder damaged (configs, tokenizer, weights, index): logits or one
                sentence, no crash
  judges        only on request: compares NumPy with transformers on the checkpoints and keys above,
                without TOOL

The judge is an independent NumPy implementation (checkpoint_judges.py), or transformers if installed.
checkpoint_configs.py draws the checkpoints, checkpoint_keys.py lists the keys. The seed is printed; the
same seed makes the same checkpoints. Exits 77, with a message, without NumPy.
"""
import argparse
import copy
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
except ImportError:
    print("skipped: python has no package numpy (tools/fetch_python.sh brings it)")
    sys.exit(77)

from checkpoint_configs import CLASSES, held_by_gguf, random_config, random_tensors, sizes, stored, text_of, write_folder
from checkpoint_judges import NumpyJudge, TransformersJudge
from checkpoint_keys import FIELDS, base_config, changes, is_silent, named

sys.path.pop(0)  # tokenizers.py beside this file is not the package

TOLERANCE = 5e-5  # relative to the largest logit; measured: 5e-6
GREEDY = 8

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
    """Longer than a small original length of LongRoPE, so that its long factors apply."""
    c = text_of(c)
    original = c.get("original_max_position_embeddings", 0)
    least = 1 + original if original < 5 else 1
    return [rng.randrange(c["vocab_size"]) for _ in range(rng.randint(least, min(24, sizes(c)["context"] - GREEDY)))]


def check_gguf(tool, folder, judge, ids, first):
    """The GGUF file is within the tolerance; the folder converted from it is bitwise equal."""
    gguf, back = folder + ".gguf", folder + "-back"
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
    return back


def check_round_trip(tool, folder, c, judge, ids, first):
    """Returns the folder converted from GGUF, or None if GGUF cannot express the config."""
    message, back = tool.convert(folder, folder + ".gguf"), None
    if message and held_by_gguf(c):
        raise Failed("conversion to GGUF: " + message)
    if not message:
        back = check_gguf(tool, folder, judge, ids, first)
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
    write_folder(folder, c, stored(rng, c, tensors), rng.choice([1, 1, 2, 3]))
    ids = prompt(rng, c)
    message, logits, greedy = tool.logits(folder, ids)
    if message:
        raise Failed("refused: " + message)
    worst = 0
    for judge in judges:
        judge.open(folder, c, tensors)
        worst = max(worst, compare("folder", judge, ids, logits, greedy))
    back = check_round_trip(tool, folder, c, judges[-1], ids, logits)
    if back and judges[-1].name == "transformers":  # it must read the folder that Weft wrote
        judges[-1].open(back, None, None)
        compare("folder from GGUF", judges[-1], ids, logits, greedy)
    return worst


# ---- Single keys ----------------------------------------------------------------------------------------


def check_change(where, own, c, tensors, ids, judges, logits, greedy):
    for judge in judges:
        try:
            judge.open(own, c, tensors)
            compare(where, judge, ids, logits, greedy)
        except Failed:
            raise
        except Exception as e:  # transformers and its dataclasses raise many kinds
            raise Failed("%s: loaded, but %s refuses it: %s" % (where, judge.name, str(e).replace("\n", " ")))


def key_tensors(rng, kind):
    drawn = random_tensors(rng, base_config(kind))
    return {name: (x, "F32") for name, (x, _) in drawn.items()}, [rng.randrange(40) for _ in range(24)]


def check_effects(kind, effect):
    for key, seen in effect.items():
        if not seen and key not in ("quantization_config", "tie_word_embeddings"):
            raise Failed("%s: no value of %s changes anything" % (kind, key))


def check_keys(rng, tool, judges, folder, kind):
    """Returns the number of changes."""
    tensors, ids = key_tensors(rng, kind)
    files = stored(random.Random(1), base_config(kind), tensors)
    bases, effect, count = {}, {}, 0

    def run(c, own):
        own = os.path.join(folder, own)
        write_folder(own, c, files)
        return (own,) + tool.logits(own, ids)

    for base, key, value, c, refusable in changes(kind):
        count += 1
        text = json.dumps(base)
        if text not in bases:
            bases[text] = run(base, "base%d" % count)[2]
        own, message, logits, greedy = run(c, "%d" % count)
        where = "%s, %s = %s" % (kind, key, json.dumps(value))
        if message:
            if not refusable or not named(key, message):
                raise Failed("%s: refused: %s" % (where, message))
            effect[key] = True
            continue
        check_change(where, own, c, tensors, ids, judges, logits, greedy)
        changed, silent = not np.array_equal(logits, bases[text]), is_silent(kind, key, c)
        if silent and changed:
            raise Failed("%s: changes the logits" % where)
        effect[key] = effect.get(key, False) or changed or silent
        if key in ("a_key_nobody_knows", "rope_parameters.nobody_knows") and "nobody_knows" not in tool.warnings():
            raise Failed("%s: ignored without a warning" % where)
    check_effects(kind, effect)
    return count


# ---- Judges alone ---------------------------------------------------------------------------------------


def logits_of(judge, folder, c, tensors, ids):
    """Returns the logits, or a text if the judge refuses the checkpoint."""
    try:
        judge.open(folder, c, tensors)
        return judge.logits(ids)
    except Exception as e:  # transformers and its dataclasses raise many kinds
        return "%s refuses it: %s: %s" % (judge.name, type(e).__name__, str(e).replace("\n", " ")[:200])


def difference(judges, folder, c, tensors, ids):
    """Compares both judges. Returns (NumPy's logits, the relative difference, or why they cannot be compared)."""
    a, b = (logits_of(j, folder, c, tensors, ids) for j in judges)
    for x in (b, a):
        if isinstance(x, str):
            return a, x
    if a.shape != b.shape:
        return a, "the judges compute different numbers of logits"
    error = np.abs(a - b).max() / np.abs(b).max()
    return a, error if error <= TOLERANCE else "the judges differ by %.1e of the largest logit" % error


def compare_checkpoint(rng, judges, folder, kind):
    c = random_config(rng, kind)
    tensors = random_tensors(rng, c)
    write_folder(folder, c, stored(rng, c, tensors))
    _, error = difference(judges, folder, c, tensors, prompt(rng, c))
    if isinstance(error, str):
        raise Failed("%s: %s" % (kind, error))
    return error


def compare_keys(rng, judges, folder, kind):
    """Returns the number of changes after which the judges agree. The others must be refusable."""
    tensors, ids = key_tensors(rng, kind)
    files = stored(random.Random(1), base_config(kind), tensors)
    effect, count = {}, 0
    for i, (base, key, value, c, refusable) in enumerate(changes(kind)):
        where, own = "%s, %s = %s" % (kind, key, json.dumps(value)), os.path.join(folder, "%d" % i)
        write_folder(own, c, files)
        logits, error = difference(judges, own, c, tensors, ids)
        if isinstance(error, str):
            if not refusable:
                raise Failed("%s: %s" % (where, error))
            effect[key] = True
            continue
        count += 1
        before = logits_of(judges[0], None, base, tensors, ids)
        changed, silent = not np.array_equal(logits, before), is_silent(kind, key, c)
        if silent and changed:
            raise Failed("%s: changes the logits" % where)
        effect[key] = effect.get(key, False) or changed or silent or refusable
    check_effects(kind, effect)
    return count


def check_fields(kinds):
    """With transformers installed: checks that every key of its config classes is tried."""
    import transformers
    for kind in kinds:
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
    p.add_argument("--only", choices=["checkpoints", "keys", "mutations", "judges"])
    p.add_argument("--families", type=lambda names: names.split(","), default=list(CLASSES))
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
    kinds = args.families
    judges = ([NumpyJudge()] if args.judge != "transformers" else []) + (
        [TransformersJudge()] if args.judge != "numpy" else [])
    if args.only == "judges":
        judges = [NumpyJudge(), TransformersJudge()]
    what = {"checkpoints": 0, "keys": 0, "mutations": 0}
    print("seed %d" % args.seed, flush=True)
    tool = Tool(args.tool) if args.only != "judges" else None
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
                check_fields(kinds)
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
        if args.only == "judges":
            check_fields(kinds)
            keys = sum(attempt("keys", lambda rng: compare_keys(rng, judges, folder, kind)) or 0 for kind in kinds)
            print("%d changes of single keys" % keys)
            for i in rounds(args, 0.6):
                worst = max(worst, attempt("checkpoints", lambda rng: compare_checkpoint(
                    rng, judges, folder, kinds[i % len(kinds)])) or 0)
        else:
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
