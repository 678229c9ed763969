#!/usr/bin/env python3
"""Makes training_golden/: a tiny GPT trained for 20 steps in float64, for another engine's training to be held against.

  training_golden.py        writes beside itself: initial.safetensors, final_{sgd,momentum,adamw}.safetensors, golden.json

Model: token table (also the head) and learned positions; pre-norm blocks with one packed projection of queries, keys and
values, causal attention, feed-forward of four widths with the tanh form of GELU; biases everywhere; final norm.
Token t of sequence b in step s is (7 s + 3 b^2 + 5 t + (b t) mod 11) mod vocabulary; targets are one place later.
Needs: pip install torch==2.13.0 numpy safetensors
"""
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

CONFIG = dict(layers=2, heads=2, width=8, context=6, batch=3, vocab=11)
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time, width = x.shape
        packed = self.qkv(self.ln1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        hidden = torch.ones(time, time, dtype=torch.bool).triu(1)
        heads = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        x = x + self.proj(heads.transpose(1, 2).reshape(batch, time, width))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocab, **_):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.ln(x) @ self.tok.weight.t()


def tokens_of(step):
    b, t = torch.arange(CONFIG["batch"])[:, None], torch.arange(CONFIG["context"] + 1)[None, :]
    return (7 * step + 3 * b * b + 5 * t + (b * t) % 11) % CONFIG["vocab"]


def train(make_optimizer, initial):
    model = Gpt(**CONFIG)
    model.load_state_dict(initial)
    optimizer = make_optimizer(model.parameters())
    losses, norms = [], {}
    for step in range(20):
        tokens = tokens_of(step)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            norms = {name: p.grad.norm().item() for name, p in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return model.state_dict(), {"losses": losses, "first_gradient_norms": norms}


def main():
    folder = pathlib.Path(__file__).resolve().parent / "training_golden"
    folder.mkdir(exist_ok=True)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    initial = {name: p + 0.05 * torch.randn_like(p) for name, p in Gpt(**CONFIG).state_dict().items()}
    save_file(initial, folder / "initial.safetensors")
    report = {"config": CONFIG, "optimizers": {}}
    for name, make_optimizer in OPTIMIZERS.items():
        final, report["optimizers"][name] = train(make_optimizer, initial)
        save_file(final, folder / f"final_{name}.safetensors")
    (folder / "golden.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
