#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/oracle/pipelines.py WEFT LOGITS [--count N] [--seed SEED]
                                 [--only models|texts|adapters|chats ...]

Compares whole commands with transformers and PEFT, on random checkpoints written by
save_pretrained. WEFT is the program, LOGITS is tests/tools/logits.

  models     logits and greedy tokens of a folder, of its GGUF file and of quantized files (against
             torch on weights that the package gguf dequantizes)
  texts      run with several prompts, eval, prepare, two steps of finetune: text, loss, gradient
             norm, weights
  adapters   LoRA folders of PEFT, merged and applied; an adapter of finetune loaded by PEFT
  chats      prepare against apply_chat_template: ids, and masks if a template has {% generation %}

Needs torch, transformers 5, peft and gguf; exits 77, with a message, without them. Prints the seed.
Two deliberate differences are not counted: text never becomes a control token, and tokens such as
<|im_end|> always end a text.
"""
import argparse
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.pop(0)  # tokenizers.py beside this file is not the package
os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")

try:
    import gguf
    import numpy as np
    import peft
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
except ImportError as missing:
    print("skipped: %s" % missing)
    sys.exit(77)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gpt2": "GPT2"}
END = "<|im_end|>"


class Failed(Exception):
    pass


class Bench:
    """The programs, the random stream, and the count of comparisons."""

    def __init__(self, weft, logits, seed):
        self.program, self.rng, self.compared, self.different = weft, random.Random(seed), 0, 0
        self.tool = subprocess.Popen([logits], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL)
        with open(os.path.join(ROOT, "docs", "training.md")) as f:
            self.text = f.read()

    def check(self, good, what, detail=""):
        self.compared += 1
        if not good:
            self.different += 1
            print("differs: %s: %s" % (what, str(detail)[:1500]), flush=True)

    def weft(self, *words):
        p = subprocess.run([self.program, *map(str, words)], capture_output=True)
        if p.returncode:
            raise Failed(p.stderr.decode(errors="replace")[-500:])
        return p.stdout

    def logits(self, path, ids, greedy=0):
        """Returns logits [ids][vocab], and the greedy tokens that follow."""
        line = "logits %d %d %s %s\n" % (greedy, len(ids), " ".join(map(str, ids)), path)
        self.tool.stdin.write(line.encode())
        self.tool.stdin.flush()
        answer = self.tool.stdout.readline().decode().rstrip("\n")
        if not answer.startswith("ok "):
            raise Failed(answer)
        x = np.frombuffer(self.tool.stdout.read(4 * int(answer.split()[1])), "<f4").reshape(len(ids), -1)
        return x, [int(t) for t in self.tool.stdout.readline().split()][1:]

    def words(self, most):
        w = self.text.split()
        n = self.rng.randint(1, most)
        at = self.rng.randrange(len(w) - n)
        return " ".join(w[at:at + n])


# ---- Checkpoints ----------------------------------------------------------------------------------------


def make_tokenizer(b, bos=None, eos=END, special=("<|endoftext|>", "<|im_start|>", END)):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([b.text[:40000]], trainers.BpeTrainer(
        vocab_size=b.rng.randint(290, 420), special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if bos:
        t.post_processor = processors.TemplateProcessing(single="%s $A" % bos,
                                                         special_tokens=[(bos, t.token_to_id(bos))])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos, eos_token=eos,
                                                clean_up_tokenization_spaces=False)


def random_rope(rng, context):
    """Random rope scaling; the original context is shorter than the prompts."""
    kind, original = rng.choice(["default", "linear", "dynamic", "llama3", "yarn", "yarn"]), rng.choice([16, 32, 64])
    rope = {"rope_type": kind, "rope_theta": rng.choice([10000.0, 1e6, 123.5])}
    if kind != "default":
        rope["factor"] = rng.choice([context / original, 4.0, 2.5])
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = original
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=rng.choice([4.0, 2.0]))
    return rope


def random_config(rng, kind, vocab):
    context, tied = rng.choice([160, 240]), rng.random() < 0.5
    if kind == "gpt2":
        heads = rng.choice([1, 3, 5, 7])
        width = heads * rng.choice([3, 7, 10, 32])
        return dict(vocab_size=vocab, n_embd=width, n_layer=rng.randint(1, 4), n_head=heads, n_positions=context,
                    n_inner=rng.choice([None, 37, 4 * width + 1]), bos_token_id=0, eos_token_id=0,
                    tie_word_embeddings=tied)
    heads = rng.choice([2, 4, 6])
    c = dict(vocab_size=vocab, hidden_size=96 if heads == 6 else rng.choice([32, 64, 96]),
             intermediate_size=rng.choice([32, 64, 77]), num_hidden_layers=rng.randint(1, 3),
             num_attention_heads=heads, num_key_value_heads=rng.choice([k for k in (1, 2, 3, 6) if heads % k == 0]),
             max_position_embeddings=context, rope_parameters=random_rope(rng, context), tie_word_embeddings=tied,
             bos_token_id=0, eos_token_id=0)
    if kind == "qwen3":
        c["head_dim"] = rng.choice([8, 16, 20])
    if kind == "llama" and rng.random() < 0.3:
        c.update(attention_bias=True, mlp_bias=True)
    if kind == "mistral":
        c["sliding_window"] = rng.choice([None, 7, 33, 100, 4096])
    if kind.startswith("qwen") and rng.random() < 0.6:
        c.update(use_sliding_window=True, sliding_window=rng.choice([5, 50, 300]), max_window_layers=rng.choice([0, 1]))
    return c


def make_model(b, folder, vocab, dtype=torch.float32, shard="5GB"):
    kind = b.rng.choice(list(CLASSES))
    config = getattr(transformers, CLASSES[kind] + "Config")(**random_config(b.rng, kind, vocab))
    m = getattr(transformers, CLASSES[kind] + ("LMHeadModel" if kind == "gpt2" else "ForCausalLM"))(config)
    g = torch.Generator().manual_seed(b.rng.getrandbits(31))
    with torch.no_grad():
        for name, p in m.named_parameters():
            x = torch.randn(p.shape, generator=g)
            table = any(part in name for part in ("embed", "wte", "wpe", "lm_head"))
            if p.dim() == 1:
                p.copy_(0.3 * x + (1 if name.endswith("weight") else 0))
            else:
                p.copy_(x * (0.7 if table else 1.2 / math.sqrt(p.shape[-1])))
    m.to(dtype).save_pretrained(folder, max_shard_size=shard)
    rope = getattr(config, "rope_parameters", None)
    return config, "%s %s rope %s tied %s" % (kind, dtype, rope, config.tie_word_embeddings)


def load(folder):
    m = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    for part in m.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return m.eval()


def reference(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def generate(model, ids, count, ends=None):
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                             max_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=ends)
    return out[0][len(ids):].tolist()


def error(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max()) if a.shape == b.shape else math.inf


# ---- Models ---------------------------------------------------------------------------------------------


def compare_blocks(b, path, model, what):
    """Compares weights whose rows have the same order in GGUF files."""
    state, pairs = model.state_dict(), {"token_embd.weight": ("model.embed_tokens.weight", "transformer.wte.weight"),
                                        "blk.0.ffn_down.weight": ("model.layers.0.mlp.down_proj.weight",),
                                        "blk.0.attn_v.weight": ("model.layers.0.self_attn.v_proj.weight",)}
    for t in gguf.GGUFReader(path).tensors:
        for name in pairs.get(t.name, ()):
            if name in state:
                same = np.array_equal(gguf.quants.dequantize(t.data, t.tensor_type), state[name].numpy())
                b.check(same, "%s: %s as %s" % (what, t.name, t.tensor_type.name))


def compare_models(b, at):
    dtype = b.rng.choice([torch.float32, torch.float16, torch.bfloat16])
    config, what = make_model(b, at + "/m", b.rng.randint(257, 333), dtype, b.rng.choice(["5GB", "20KB", "60KB"]))
    ids = [b.rng.randrange(config.vocab_size) for _ in range(b.rng.choice([3, 20, 90, 150]))]
    model = load(at + "/m")
    wanted = reference(model, ids), generate(model, ids, 8)
    b.weft("convert", at + "/m", at + "/m.gguf")
    for path in (at + "/m", at + "/m.gguf"):
        x, tokens = b.logits(path, ids, 8)
        b.check(error(x, wanted[0]) < 5e-5, what, error(x, wanted[0]))
        b.check(tokens == wanted[1], what + ": greedy", (tokens, wanted[1]))
    kind = b.rng.choice(["q8_0", "q4_0", "q4_1", "q6_K", "Q4_K_M", "q4_K", "f16", "bf16"])
    b.weft("quantize", b.rng.choice([at + "/m", at + "/m.gguf"]), at + "/q.gguf", kind)
    b.weft("convert", at + "/q.gguf", at + "/q", "--type", "f32")
    model = load(at + "/q")
    x, tokens = b.logits(at + "/q.gguf", ids, 8)
    b.check(error(x, reference(model, ids)) < 2e-3, what + ": " + kind, error(x, reference(model, ids)))
    compare_blocks(b, at + "/q.gguf", model, what)


# ---- Texts ----------------------------------------------------------------------------------------------


def read_shard(folder):
    """Returns the ids, and the mask or None."""
    with open(folder + "/train-00000.weft", "rb") as f:
        raw = f.read()
    head = struct.unpack("<16Q", raw[:128])
    ids = [int(v) for v in np.frombuffer(raw, "<u2", head[3], 128)]
    if head[10] == 0:
        return ids, None
    return ids, np.unpackbits(np.frombuffer(raw[head[10]:], "u1"), bitorder="little")[:head[3]].tolist()


def compare_run(b, folder, tok, model, what):
    prompts = [b.words(20) for _ in range(b.rng.choice([1, 3, 9]))]
    out = b.weft("run", folder, *["--prompt=" + p for p in prompts], "--no-escape", "-n", 12, "--temp", 0,
                 "--repeat-penalty", 1, "--json")
    for prompt, got in zip(prompts, json.loads(out)):
        ids = tok(prompt)["input_ids"]
        tokens = generate(model, ids, 12, [0, tok.convert_tokens_to_ids(END)])
        wanted = tok.decode(tokens, skip_special_tokens=True)
        b.check(got["prompt_tokens"] == len(ids) and got["text"] == wanted, what + ": run", (got, wanted))


def compare_eval(b, at, tok, model, what):
    text, context = b.text[b.rng.randrange(9000):][:1200], b.rng.choice([16, 33, 100])
    with open(at + "/eval.txt", "w") as f:
        f.write(text)
    ids, total, count = tok(text, add_special_tokens=False)["input_ids"], 0.0, 0
    bos = [] if tok.bos_token_id is None else [tok.bos_token_id]
    for i in range(0, len(ids), context - len(bos)):
        window = bos + ids[i:i + context - len(bos)]
        if len(window) > 1:
            x = torch.log_softmax(torch.tensor(reference(model, window)).double(), -1)
            total -= x[torch.arange(len(window) - 1), torch.tensor(window[1:])].sum().item()
            count += len(window) - 1
    for flags in ([], ["-b", 7]):
        got = json.loads(b.weft("eval", at + "/m", "--data", at + "/eval.txt", "-c", context, "--json", *flags))
        b.check(got["counted_tokens"] == count and abs(got["loss"] - total / count) < 1e-4, what + ": eval",
                (got, total / count, count))


def optimizer_of(name, model, rate, decay):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=0.9)
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8)


def compare_finetune(b, at, tok, what):
    """One batch holds all rows, so their order does not matter."""
    text, length = b.text[5000:5000 + b.rng.choice([900, 1500])], b.rng.choice([16, 24, 40])
    with open(at + "/train.txt", "w") as f:
        f.write(text)
    b.weft("prepare", at + "/train.txt", "--tokenizer", at + "/m", "-o", at + "/data", "--valid", 0)
    ids, _ = read_shard(at + "/data")
    b.check(ids == tok(text)["input_ids"] + [tok.eos_token_id], what + ": prepare", ids[:8])
    rows, name = (len(ids) - 1) // length, b.rng.choice(["sgd", "adamw"])
    rate, decay, clip = b.rng.choice([1e-2, 1e-3]), b.rng.choice([0, 0.1]), b.rng.choice([0, 0.5])
    b.weft("finetune", at + "/m", "--data", at + "/data", "--out", at + "/run", "--steps", 2, "--batch", rows, "--length",
           length, "--optimizer", name, "--rate", rate, "--schedule", "constant", "--warmup", 0, "--weight-decay", decay,
           "--clip", clip)
    with open(at + "/run/log.jsonl") as f:
        steps = [e for e in map(json.loads, f) if e["event"] == "step"]
    model = load(at + "/m").train()
    optimizer = optimizer_of(name, model, rate, decay)
    x = torch.tensor(ids[:rows * length]).view(rows, length)
    y = torch.tensor(ids[1:rows * length + 1])
    for i, step in enumerate(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf).item()
        optimizer.step()
        near = abs(step["loss"] - loss.item()) < 2e-4 * (1 + 10 * i) and abs(step["norm"] / norm - 1) < 1e-3 * (1 + 10 * i)
        b.check(near, "%s: finetune, %s, step %d" % (what, name, i), (step, loss.item(), norm))
    if name == "sgd":
        b.weft("convert", at + "/run/model.gguf", at + "/tuned")
        got, wanted = load(at + "/tuned").state_dict(), model.state_dict()
        worst = max((got[k] - v).abs().max().item() for k, v in wanted.items())
        b.check(worst < 5e-5, what + ": weights after two steps", worst)


def compare_texts(b, at):
    tok = make_tokenizer(b, b.rng.choice([None, "<|endoftext|>"]), "<|endoftext|>")
    _, what = make_model(b, at + "/m", len(tok))
    tok.save_pretrained(at + "/m")
    model = load(at + "/m")
    compare_run(b, at + "/m", tok, model, what)
    compare_eval(b, at, tok, model, what)
    compare_finetune(b, at, tok, what)


# ---- Adapters -------------------------------------------------------------------------------------------


def random_adapter(b, folder, kind):
    linears = ["c_attn", "c_proj", "c_fc"] if kind == "gpt2" else [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    targets = b.rng.sample(linears, b.rng.randint(1, len(linears)))
    config = peft.LoraConfig(r=b.rng.choice([1, 3, 8, 33]), lora_alpha=b.rng.choice([1, 7, 16, 0.5]),
                             use_rslora=b.rng.random() < 0.5, fan_in_fan_out=kind == "gpt2", bias="none",
                             target_modules=b.rng.choice([targets, r".*\.(%s)" % "|".join(targets), "all-linear"]))
    model = peft.get_peft_model(load(folder), config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn(p.shape) * 0.3 / math.sqrt(max(p.shape)))
    return model, config


def compare_adapters(b, at):
    tok = make_tokenizer(b)
    config, what = make_model(b, at + "/m", len(tok))
    tok.save_pretrained(at + "/m")
    model, lora = random_adapter(b, at + "/m", config.model_type)
    model.save_pretrained(at + "/lora")
    what = "%s: r %d, alpha %s, %s" % (what, lora.r, lora.lora_alpha, lora.target_modules)
    ids = [b.rng.randrange(len(tok)) for _ in range(20)]
    wanted = reference(model, ids)
    b.weft("convert", at + "/m", at + "/m.gguf")
    for source, out in ((at + "/m", at + "/merged.gguf"), (at + "/m.gguf", at + "/merged")):
        b.weft("convert", source, out, "--lora", at + "/lora")
        x, _ = b.logits(out, ids)
        b.check(error(x, wanted) < 5e-5, what + ": merged", error(x, wanted))
    with open(at + "/t.txt", "w") as f:
        f.write(b.text[1000:1400])
    ids = tok(b.text[1000:1400])["input_ids"][:64]
    loss = torch.nn.functional.cross_entropy(torch.tensor(reference(model, ids))[:-1], torch.tensor(ids[1:])).item()
    for source in (at + "/m", at + "/m.gguf"):
        got = json.loads(b.weft("eval", source, "--lora", at + "/lora", "--data", at + "/t.txt", "-c", 64, "--limit", 64,
                                "--json"))
        b.check(abs(got["loss"] - loss) < 5e-5, what + ": eval", (got["loss"], loss))
    b.weft("finetune", b.rng.choice([at + "/m", at + "/m.gguf"]), "--data", at + "/t.txt", "--out", at + "/run", "--lora", 4,
           "--steps", 3, "--batch", 2, "--length", 16, "--rate", 0.01)
    b.weft("convert", at + "/m", at + "/tuned.gguf", "--lora", at + "/run/adapter")
    wanted = reference(peft.PeftModel.from_pretrained(load(at + "/m"), at + "/run/adapter").eval(), ids)
    x, _ = b.logits(at + "/tuned.gguf", ids)
    b.check(error(x, wanted) < 5e-5, what + ": Weft's adapter in PEFT", error(x, wanted))


# ---- Chats ----------------------------------------------------------------------------------------------

MARKED = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
          "{{ m.content | trim }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}")
CLOSED = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% else %}{{ eos_token }}{% endif %}")
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The <current> \"weather\" & more",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]


def random_template(b):
    names = sorted(n for n in os.listdir(os.path.join(ROOT, "tests", "fixtures", "templates")) if n.endswith(".jinja"))
    name = b.rng.choice(names + 3 * ["marked", "closed", "tool_use"])
    if name == "tool_use":
        return name, {"default": CLOSED, "tool_use": "{{ tools | tojson }}" + CLOSED}
    if name in ("marked", "closed"):
        return name, MARKED if name == "marked" else CLOSED
    with open(os.path.join(ROOT, "tests", "fixtures", "templates", name)) as f:
        return name, f.read()


def random_chat(b):
    odd = ["日本語", "naïve", "😀", "\n\n", "tab\there", "'q'", '"dq"', "<b>&amp;</b>", "\\n", "{x}"]

    def say():  # control tokens in messages are text here, and tokens in transformers
        return (b.words(12) + " " + b.rng.choice(odd)).replace("<|", "<").replace("[INST]", "")

    chat = {"messages": [{"role": "system", "content": say()}] if b.rng.random() < 0.5 else []}
    for _ in range(b.rng.randint(1, 3)):
        chat["messages"] += [{"role": "user", "content": say()}, {"role": "assistant", "content": say()}]
    if b.rng.random() < 0.4:
        chat["tools"] = TOOLS
    return chat


def compare_chats(b, at):
    name, template = random_template(b)
    tok = make_tokenizer(b, "<|endoftext|>", END)
    tok.chat_template = template
    tok.save_pretrained(at + "/m", save_jinja_files=b.rng.random() < 0.5)
    for i in range(4):
        chat, marks = random_chat(b), "{% generation" in str(template)
        with open(at + "/chat.jsonl", "w") as f:
            f.write(json.dumps(chat) + "\n")
        try:
            wanted = tok.apply_chat_template(chat["messages"], tools=chat.get("tools"), return_dict=True,
                                             return_assistant_tokens_mask=marks)
        except Exception:  # an error of the template
            wanted = None
        try:
            b.weft("prepare", at + "/chat.jsonl", "--tokenizer", at + "/m", "-o", "%s/data%d" % (at, i), "--valid", 0)
        except Failed as failure:
            known = name == "qwen3.jinja" and "otherwise than within the whole" in str(failure)  # drops thinking
            b.check(wanted is None or known, name + ": refused", failure)
            continue
        ids, mask = read_shard("%s/data%d" % (at, i))
        count = len(wanted["input_ids"]) if wanted else 0  # Weft may add an end token
        b.check(wanted and ids[:count] == wanted["input_ids"] and ids[count:] in ([], [tok.eos_token_id]), name + ": ids",
                (tok.decode(ids), wanted and tok.decode(wanted["input_ids"]), chat))
        if marks and wanted:
            b.check(mask[:count] == wanted["assistant_masks"], name + ": mask", (mask, wanted["assistant_masks"]))


def main():
    kinds = {"models": compare_models, "texts": compare_texts, "adapters": compare_adapters, "chats": compare_chats}
    p = argparse.ArgumentParser()
    p.add_argument("weft")
    p.add_argument("logits")
    p.add_argument("--count", type=int, default=8)
    p.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    p.add_argument("--only", nargs="+", choices=list(kinds), default=list(kinds))
    o = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(o.seed)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("seed %d" % o.seed, flush=True)
    b = Bench(os.path.abspath(o.weft), os.path.abspath(o.logits), o.seed)
    for kind in o.only:
        for _ in range(o.count):
            with tempfile.TemporaryDirectory() as at:
                try:
                    kinds[kind](b, at)
                except Failed as failure:
                    b.check(False, kind, failure)
    b.tool.stdin.close()
    b.tool.wait()
    print("%d comparisons, %d differ" % (b.compared, b.different))
    return 1 if b.different else 0


if __name__ == "__main__":
    sys.exit(main())
