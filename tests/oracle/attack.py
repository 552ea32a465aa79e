#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/attack.py WEFT [--seconds S] [--count N] [--seed SEED] [--only traps|files]
                               [--no-memory] [--keep-going]

Attacks the program WEFT (run from the root of the source tree) in random ways.

  traps   runs commands that write, with foreign files, links, pipes and folders in the way. Some
          commands are killed, or get a full disk. Nothing outside of the output may change, and no
          planted file may be lost unless the command has --overwrite.
  files   damages one file that a command reads: JSON values, headers, lengths, bytes. Every command
          must end in time, without a signal, with less than 1 GB of memory and without control
          characters in its messages.

The seed is printed; the same seed makes the same attacks. A failure prints its own seed and the
command, and keeps the folder.
"""
import argparse
import copy
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

MODEL = "tests/fixtures/models/llama"
MEMORY_KB = 1000 * 1000
TIMEOUT = float(os.environ.get("WEFT_ATTACK_TIMEOUT", "120"))  # seconds; the commands take milliseconds


class Failure(Exception):
    pass


class Program:
    """Runs the program and checks how it ended."""

    def __init__(self, weft, memory):
        self.weft, self.memory = weft, memory
        self.last = []

    def run(self, args, cwd, kill=None, file_bytes=None, stdin=b"", text_stdout=True):
        """kill: (signal, seconds). Returns the exit status; negative: the signal that was sent here."""
        self.last = args

        def limits():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if file_bytes:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_ARG_")}
        env["HOME"] = cwd
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as inp:
            inp.write(stdin)
            inp.seek(0)
            p = subprocess.Popen([self.weft] + args, cwd=cwd, stdin=inp, stdout=out, stderr=err,
                                 preexec_fn=limits, env=env)
            late, ended = [], []

            def send(number):  # Popen.send_signal would wait for a process that has ended
                if not ended:
                    os.kill(p.pid, number)

            timers = [threading.Timer(TIMEOUT, lambda: (late.append(1), send(signal.SIGKILL)))]
            if kill:
                timers.append(threading.Timer(kill[1], send, kill[:1]))
            for t in timers:
                t.daemon = True
                t.start()
            os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
            ended.append(1)  # not reaped yet, so its pid is not reused
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = 0
            for t in timers:
                t.cancel()
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            out.seek(0)
            err.seek(0)
            said, printed = err.read(1 << 22), out.read(1 << 22)
        self.said = said.decode("utf-8", "replace")
        if late:
            raise Failure("it ran for more than %g s" % TIMEOUT)
        if code < 0 and not (kill and -code == kill[0]):
            raise Failure("it ended by signal %d\n%s" % (-code, said[-2000:]))
        if b"runtime error" in said or b"AddressSanitizer" in said or b"LeakSanitizer" in said:
            raise Failure(said[-4000:].decode("utf-8", "replace"))
        if self.memory and usage.ru_maxrss > MEMORY_KB:
            raise Failure("it took %d kB of memory" % usage.ru_maxrss)
        for what in [said] + ([printed] if text_stdout else []):
            bad = [b for b in what if b < 32 and b not in (9, 10)]
            if bad or b"\x7f" in what or b"\xc2\x9b" in what:
                raise Failure("it printed control characters: %r" % what[-600:])
        if code not in (0, 1, 2, 3) and code >= 0:
            raise Failure("it ended with status %d\n%s" % (code, said[-2000:]))
        if code in (1, 2) and not said.strip():
            raise Failure("it failed with status %d and no message" % code)
        return code


def write(path, data):
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def read(path):
    with open(path, "rb") as f:
        return f.read()


def digest(path):
    return hashlib.sha1(read(path)).hexdigest()


def tree(folder):
    """Returns {path: contents} of everything in a folder; does not follow links."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            if os.path.islink(path):
                found[path] = "link " + os.readlink(path)
            elif os.path.isfile(path):
                found[path] = digest(path)
            else:
                found[path] = "folder" if os.path.isdir(path) else "other"
    return found


TRAIN = "--depth 1 -b 1 -l 32 -q --valid-every 0 -t 1 --memory 500M".split()


def make_inputs(program, root, rng):
    """The folder 'in': a model in both formats, an adapter, data, a foreign run, texts."""
    into = os.path.join(root, "in")
    os.makedirs(into)
    shutil.copytree(MODEL, into + "/folder")
    for name in ("logits.f32", "reference.json"):
        os.remove(into + "/folder/" + name)
    words = "the quick brown fox jumps over a lazy dog and runs away again".split()
    text = "\n".join(" ".join(rng.choice(words) for _ in range(8)) for _ in range(60))
    write(into + "/text.txt", text)
    turn = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello there"}]
    write(into + "/chat.jsonl", "\n".join(json.dumps({"messages": turn}) for _ in range(8)) + "\n")
    write(into + "/choices.jsonl", json.dumps({"ctx": "a b", "endings": ["c", "d e"], "label": 1}) + "\n")
    for args in ("convert folder m.gguf", "convert m.gguf s.gguf --split-size 600K",
                 "prepare text.txt -o data -q --vocab 300",
                 "prepare chat.jsonl -o chats -q --tokenizer folder --valid 0",
                 " ".join(["train --data data --out run --steps 3 --save-every 1 --keep 0 --export none"] + TRAIN),
                 "finetune m.gguf --data chats --out tuned --steps 1 --lora 2 -q -b 1 -l 64 -t 1 --valid-every 0"):
        if program.run(args.split(), into) != 0:
            raise Failure("the inputs cannot be made: weft %s\n%s" % (args, program.said))
    return into


# ---- Traps --------------------------------------------------------------------------------------------------

RUN_NAMES = ["lock", "log.jsonl", "loss.svg", "model.gguf", "adapter", "data", ".data.part", ".data.old",
             "step-00000001", "step-00000002", ".step-00000001.old", ".step-00000001.gone", "step-00000001.bak-1",
             ".step-00000002.gone", "notes.txt", "adapter/adapter_config.json"]
FOLDER_NAMES = ["config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json",
                "tokenizer_config.json", "generation_config.json", "model-00001-of-00002.safetensors", "notes.txt",
                "chat_template.jinja", "data.json", "train-00000.weft", "lock"]

# (command, names that may lie in the way). $I: the inputs, $O: a folder that exists.
WRITERS = [
    ("train --data $I/data --out $O/r --steps 2 --save-every 1 --keep 1", ["r/" + n for n in RUN_NAMES]),
    ("train --data $I/data --out $O/r --steps 2 --save-every 1 --keep 1", ["r/" + n for n in RUN_NAMES]),
    ("train --data $I/text.txt --out $O/r --steps 2 --save-every 1 --keep 1", ["r/" + n for n in RUN_NAMES]),
    ("finetune $I/m.gguf --data $I/chat.jsonl --out $O/r --steps 2 --lora 2 --keep 1", ["r/" + n for n in RUN_NAMES]),
    ("finetune $I/folder --data $I/chats --out $O/r --steps 2 --keep 1", ["r/" + n for n in RUN_NAMES]),
    ("prepare $I/text.txt -o $O/d -q --vocab 300", ["d", ".d.part", ".d.old", ".d.part/lock"] + ["d/" + n for n in FOLDER_NAMES]),
    ("convert $I/m.gguf $O/f", ["f"] + ["f/" + n for n in FOLDER_NAMES]),
    ("convert $I/folder $O/f --type f16", ["f"] + ["f/" + n for n in FOLDER_NAMES]),
    ("convert $I/folder $O/m.gguf", ["m.gguf"]),
    ("convert $I/s-00001-of-00002.gguf $O/m.gguf --split-size 300K",
     ["m.gguf", "m-00001-of-00004.gguf", "m-00002-of-00002.gguf", "m-00004-of-00004.gguf"]),
    ("quantize $I/m.gguf $O/m.gguf q8_0", ["m.gguf"]),
    ("tokenize --train $I/text.txt --vocab 270 -o $O/", FOLDER_NAMES),
    ("tokenize --train $I/text.txt --vocab 270 -o $O/m.gguf", ["m.gguf"]),
    ("plot $I/run/log.jsonl -o $O/p.svg", ["p.svg"]),
]
# Files that --resume updates and --overwrite replaces; no other file of a run's folder may be lost.
RECORDS = {"log.jsonl", "loss.svg", "model.gguf", "adapter", "adapter_config.json"}


def plant(rng, path, inputs, victim, linked, pipes):
    """Puts something at `path`; returns the bytes that must not be lost, or None."""
    mine = b"planted %d\n" % rng.getrandbits(60)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        return None
    kinds = ["file", "file", "folder", "checkpoint"] + ["pipe"] * pipes
    if linked:
        kinds += ["link", "link", "link to folder", "dangling", "link to checkpoint", "link to input", "hard link"]
    kind = rng.choice(kinds)
    if kind == "file":
        write(path, mine)
    elif kind == "folder":
        os.mkdir(path)
        write(path + "/notes.txt", mine)
    elif kind == "pipe":
        os.mkfifo(path)
        return None
    elif kind == "checkpoint":
        shutil.copytree(inputs + "/run/step-0000000%d" % rng.randint(1, 3), path)
        write(path + "/notes.txt", mine)
    elif kind == "hard link":
        os.link(victim + "/thesis.txt", path)
        return None
    else:
        os.symlink({"link": victim + "/thesis.txt", "link to folder": victim + "/photos",
                    "dangling": victim + "/new", "link to checkpoint": inputs + "/run/step-00000001",
                    "link to input": inputs + "/" + rng.choice(["m.gguf", "folder/tokenizer.json", "text.txt",
                                                               "folder/model.safetensors", "s-00002-of-00002.gguf"]),
                    }[kind], path)
        return None
    return mine


def survives(root, mine):
    for at, _, files in os.walk(root):
        for name in files:
            path = os.path.join(at, name)
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) < 1 << 20 and \
                    mine in read(path):
                return True
    return False


def attack_traps(program, rng, root, inputs):
    victim, out = root + "/victim", root + "/out"
    for folder in (victim, out):
        shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(victim + "/photos")
    os.makedirs(out)
    write(victim + "/thesis.txt", "years of work\n")
    write(victim + "/photos/1.jpg", "a photo\n")
    command, names = rng.choice(WRITERS)
    training = command.startswith(("train", "finetune"))
    flags = [f for f in (["--overwrite", "--resume", "--restart"] if training else ["--overwrite"])
             if rng.random() < 0.3]
    if training:
        flags += TRAIN[2 if "finetune" in command else 0:] + rng.choice([[], [], ["--export", "none"]])
    planted = []
    for name in rng.sample(names, min(len(names), rng.choice([1, 1, 2, 3]))):
        path = out + "/" + name
        if any(not os.path.isdir(p) or os.path.islink(p) for p in (os.path.dirname(path),) if os.path.lexists(p)):
            continue
        # --overwrite writes through links at the output's path, as documented.
        output = os.path.basename(name) in RECORDS if training else True
        # A named pipe as the output waits for its reader.
        mine = plant(rng, path, inputs, victim, not ("--overwrite" in flags and output), not output)
        given_up = output and ("--overwrite" in flags or "--resume" in flags)
        if mine and not given_up and not ("--resume" in flags and "step-" in name):
            planted.append((name, mine))
    # A dangling link as the output may be written through.
    if os.path.islink(out + "/" + names[0]) and not training:
        os.remove(out + "/" + names[0])
    before = {**tree(victim), **tree(inputs)}
    args = command.replace("$I", inputs).replace("$O", out).split() + flags
    kill = (rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT]),
            rng.uniform(0, 0.15)) if rng.random() < 0.3 else None
    for _ in range(rng.choice([1, 1, 2])):  # the second time on the leftovers of the first
        program.run(args, out, kill, rng.choice([None] * 6 + [4096, 65536]))
        kill = None
        after = {**tree(victim), **tree(inputs)}
        for path in set(before) | set(after):
            if before.get(path) != after.get(path):
                raise Failure("'%s' was %s and is %s" % (path, before.get(path), after.get(path)))
        for name, mine in planted:
            if not survives(out, mine):
                raise Failure("the file that was planted at '%s' is lost" % name)


# ---- Files --------------------------------------------------------------------------------------------------

HOSTILE = [None, True, False, -1, 0, 1, 2, 3, 7, 1 << 31, 1 << 40, 1 << 63, -(1 << 63), 1e308, -0.5, 1e-320, [], {},
           "", "\x1b]0;owned\x07\x1b[2J", "../../../etc/passwd", "/etc/passwd", "a" * 70000, "\u202e\u0000", [[[[]]]],
           ["\x1b[31m"] * 3, {"type": "\x9b31m"}, "%s%n", list(range(5000)), {"\x1b[2J": 1}]


def places(node, found):
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        found.append((node, key))
        places(value, found)
    return found


def damage_json(rng, node, limit=4):
    for _ in range(rng.randint(1, limit)):
        found = places(node, [])
        if not found:
            return node
        holder, key = rng.choice(found[:60] if rng.random() < 0.5 else found)
        what, kind = copy.deepcopy(rng.choice(HOSTILE)), rng.random()
        if kind < 0.5:
            holder[key] = what
        elif kind < 0.6:
            del holder[key]
        elif kind < 0.7 and isinstance(holder, dict):
            holder[rng.choice(["\x1b[2J", "__proto__", "type", "a" * 1000])] = what
        elif kind < 0.8:
            holder[key] = copy.deepcopy(holder[rng.choice([k for h, k in found if h is holder])])
        elif isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([holder[key] * 2, holder[key] + 1, -holder[key], holder[key] * 1000003])
        elif isinstance(holder[key], str):
            at = rng.randint(0, len(holder[key]))
            holder[key] = holder[key][:at] + rng.choice(["\x1b[31m", "\x00", "../", "{%", "\ud800", "9" * 40]) + \
                holder[key][at:]
    return node


def dump(node):
    return json.dumps(node).encode()


def damage_text(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        kind = rng.random()
        if kind < 0.3 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind < 0.5:
            data[at:at] = rng.choice([b"\x1b[2J", b"\x00", b"[" * 3000, b"{\"a\":" * 2000, b"\xff\xfe", b"\r", b"\"",
                                      b"9" * 400, b"\xef\xbb\xbf", b"\\ud800", b"1e99999", b"\xc2\x9b31m"])
        elif kind < 0.7:
            del data[at:at + rng.choice([1, 10, 1000])]
        elif kind < 0.85:
            other = rng.randrange(len(data) + 1)
            data[at:at] = data[other:other + rng.choice([1, 20, 500])]
        else:
            del data[at:]
    return bytes(data)


def damage_safetensors(rng, data):
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = data[8:8 + size], data[8 + size:]
    kind = rng.random()
    if kind < 0.6:
        header = dump(damage_json(rng, json.loads(header)))
    elif kind < 0.8:
        header = damage_text(rng, header)
    else:
        rest = damage_text(rng, rest)
    length = len(header) if rng.random() < 0.9 else rng.choice([0, 1, 1 << 40, (1 << 64) - 1, len(header) + 8])
    return struct.pack("<Q", length) + header + rest


def damage_gguf(rng, data):
    """Damages bytes of the metadata: counts, lengths, types, strings."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(4, min(len(data), rng.choice([64, 2000, 12000])))
        kind = rng.random()
        if kind < 0.4:
            data[at] = rng.choice([0, 1, 8, 9, 27, 127, 255, rng.randrange(256)])
        elif kind < 0.6:
            value = rng.choice([0, 1, 1 << 20, 1 << 31, 1 << 40, (1 << 63) + 1, (1 << 64) - 1])
            data[at:at + 8] = struct.pack("<Q", value)
        elif kind < 0.7:
            data[at:at + 4] = struct.pack("<f", rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e30]))
        elif kind < 0.9:  # a string of the same length, so that its length field stays valid
            text = rng.choice([b"\x1b]0;owned\x07", b"\x1b[2J\x1b[H", b"../../../x", b"\xff\xfe\xfd", b"{% for x in"])
            data[at:at + len(text)] = text
        else:
            del data[at:]
    return bytes(data)


def damage(rng, name, data):
    kind = rng.random()
    if name.endswith(".safetensors"):
        return damage_safetensors(rng, data)
    if name.endswith(".gguf"):
        return damage_gguf(rng, data)
    if name.endswith(".json") and kind < 0.75:
        return dump(damage_json(rng, json.loads(data)))
    if name.endswith(".jsonl") and kind < 0.6:
        return b"\n".join(dump(damage_json(rng, json.loads(line), 2)) for line in data.splitlines()) + b"\n"
    if name.endswith(".weft") and kind < 0.7:
        at = rng.randrange(min(len(data), 128))
        return data[:at] + struct.pack("<Q", rng.choice([0, 1, 1 << 31, 1 << 40, (1 << 64) - 1])) + data[at + 8:]
    return damage_text(rng, data)


# (files, of which one is damaged; commands that read them)
READERS = [
    (["folder/config.json", "folder/tokenizer.json", "folder/tokenizer_config.json", "folder/generation_config.json",
      "folder/model.safetensors", "folder/chat_template.jinja"],
     ["info folder", "info folder --json", "tokenize folder -p hello", "run folder hello -n 2 -c 64 -t 1",
      "chat folder -p hello -st -n 2 -t 1", "convert folder o.gguf", "eval folder --data text.txt -c 32 -t 1 --limit 40",
      "prepare chat.jsonl -o o -q --tokenizer folder", "plan folder",
      "finetune folder --data chats --out o --steps 1 -q -b 1 -l 64 -t 1 --memory 500M"]),
    (["m.gguf", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf"],
     ["info $F", "info $F --json", "tokenize $F -p hello", "run $F hello -n 2 -c 64 -t 1", "plan $F",
      "chat $F -p hello -st -n 2 -t 1", "convert $F o", "quantize $F o.gguf q8_0",
      "finetune $F --data chats --out o --steps 1 --lora 2 -q -b 1 -l 64 -t 1 --memory 500M"]),
    (["tuned/adapter/adapter_config.json", "tuned/adapter/adapter_model.safetensors"],
     ["run m.gguf hello -n 2 -c 64 -t 1 --lora tuned/adapter", "convert m.gguf o.gguf --lora tuned/adapter"]),
    (["data/data.json", "data/tokenizer.json", "data/tokenizer_config.json", "data/train-00000.weft",
      "data/valid-00000.weft"],
     ["train --data data --out o --steps 1 --export none $T", "tokenize data -p hello",
      "prepare text.txt -o data -q --overwrite --vocab 300"]),
    (["run/step-00000003/manifest.json", "run/step-00000003/trainer.json", "run/step-00000003/optimizer.safetensors",
      "run/step-00000003/config.json", "run/log.jsonl"],
     ["train --data data --out run --steps 4 --resume --export none --keep 0 $T", "plot run", "info run/step-00000003"]),
    (["run/log.jsonl"], ["plot run/log.jsonl", "plot run/log.jsonl -o o.svg"]),
    (["chat.jsonl", "choices.jsonl", "text.txt"],
     ["prepare $F -o o -q --tokenizer folder", "prepare $F -o o -q --tokenizer folder --skip-bad",
      "prepare $F -o o -q --vocab 300 --format jsonl", "eval m.gguf --choices $F -t 1 -c 64",
      "eval m.gguf --data $F -t 1 -c 64 --limit 50", "tokenize --train $F --vocab 270 -o o.gguf",
      "tokenize m.gguf -f $F --ids", "tokenize m.gguf -f $F --decode", "plan $F", "plot $F"]),
]
TEXT_OF_MODELS = ("run", "chat")  # stdout is generated text


def attack_files(program, rng, root, inputs):
    world = root + "/world"
    if not os.path.isdir(world):
        shutil.copytree(inputs, world)
    files, commands = rng.choice(READERS)
    name = rng.choice(files)
    good = read(world + "/" + name)
    before = tree(root + "/victim") if os.path.isdir(root + "/victim") else {}
    bad = damage(rng, name, good)
    write(world + "/" + name, bad)
    command = rng.choice(commands).replace("$F", name).replace("$T", " ".join(TRAIN)).split()
    decode = "--decode" in command
    program.run(command, world, text_stdout=command[0] not in TEXT_OF_MODELS and not decode)
    if before and tree(root + "/victim") != before:
        raise Failure("a file outside of the output was changed")
    if command[0] in ("train", "prepare") and ("--resume" in command or "--overwrite" in command):
        shutil.rmtree(world)
        return
    write(world + "/" + name, good)
    for left in ("o", "o.gguf", "o.svg", ".o.part"):
        path = world + "/" + left
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("WEFT_SEED", "0")) or None)
    parser.add_argument("--only", choices=["traps", "files"])
    parser.add_argument("--no-memory", action="store_true", help="do not judge memory: of sanitized programs")
    parser.add_argument("--keep-going", action="store_true", help="report failures and continue")
    options = parser.parse_args()
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    print("seed %d" % seed, flush=True)
    program = Program(os.path.abspath(options.weft), not options.no_memory)
    root = tempfile.mkdtemp(prefix="weft-attack-")
    counts, failed = {"traps": 0, "files": 0}, 0
    inputs = make_inputs(program, root, random.Random(seed))
    end, i = time.monotonic() + options.seconds, 0
    while i < options.count and time.monotonic() < end:
        case = seed + i
        i += 1
        rng = random.Random(case)
        kind = rng.choice(["traps", "files"])  # drawn always, so that --only leaves a seed its attack
        kind = options.only or kind
        try:
            {"traps": attack_traps, "files": attack_files}[kind](program, rng, root, inputs)
            counts[kind] += 1
        except Failure as failure:
            failed += 1
            print("FAILED %s: --seed %d --count 1 --only %s\nweft %s\n%s\nin %s" %
                  (kind, case, kind, " ".join(program.last), failure, root), flush=True)
            if not options.keep_going:
                return 1
            shutil.rmtree(root)
            os.mkdir(root)
            inputs = make_inputs(program, root, random.Random(seed))
    shutil.rmtree(root)
    print("%d traps and %d damaged files" % (counts["traps"], counts["files"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
