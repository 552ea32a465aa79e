# SPDX-License-Identifier: MIT
"""torch_gpt2.py BATCH LENGTH STEPS THREADS: times training steps of GPT-2 124M in f32 with PyTorch
on the CPU: forward, backward, clipping by the gradient norm, fused AdamW, as in `weft bench train`.
Prints JSON."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, WIDTH, LAYERS, HEADS, CONTEXT = 50257, 768, 12, 12, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).view(-1, VOCAB), targets.view(-1))


def main():
    batch, length, steps, threads = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model()
    update = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ms = []
    for _ in range(2 + steps):
        text = torch.randint(0, VOCAB, (batch, length + 1))
        start = time.perf_counter()
        loss = model(text[:, :-1].contiguous(), text[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad(set_to_none=True)
        ms.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"version": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads(),
                      "mkl": torch.backends.mkl.is_available(), "onednn": torch.backends.mkldnn.is_available(), "ms": ms[2:]}))


main()
