#!/usr/bin/env python3
"""PyTorch reference for training a character GPT: nanoGPT's CPU set-up on tinyshakespeare.

Model: decoder-only GPT, 4 layers, 4 heads, width 128, context 64, learned positions, no biases,
LayerNorm eps 1e-5, exact (erf) GELU, output head tied to the token embedding, no dropout.
Initial weights: normal, std 0.02; the projections back into the residual stream (attention
output, second MLP matrix) std 0.02 / sqrt(2 * layers); LayerNorm gains 1.
Data: symbols are the text's distinct bytes in byte order; the first 90 % is for training, the
rest for validation. A batch is 12 windows of 64, drawn uniformly from the training part.
Training: 2000 steps of AdamW, betas (0.9, 0.99), eps 1e-8, weight decay 0.1 on matrices
(embeddings included), gradient norm clipped at 1.0; learning rate warmed up linearly to 1e-3
over 100 steps, then cosine decay that would reach 1e-4 at step 2000 (at --steps, if given).
Result: mean cross-entropy in nats over the whole validation part, cut into consecutive windows
of 64 (the last one shorter), so that every target is predicted exactly once.

Needs: pip install torch==2.13.0 numpy
Usage: torch_shakespeare.py --text input.txt [--seed 1] [--steps 2000] [--threads 2] [--json]
Progress goes to standard error, the result to standard output.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
MAX_RATE, MIN_RATE, WARMUP_STEPS = 1e-3, 1e-4, 100
BETAS, ADAM_EPS, WEIGHT_DECAY, CLIP_NORM = (0.9, 0.99), 1e-8, 0.1, 1.0
INIT_STD = 0.02
LOG_EVERY = 250


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH, eps=1e-5, bias=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ln2 = nn.LayerNorm(WIDTH, eps=1e-5, bias=False)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, HEADS, c // HEADS).transpose(1, 2)
                   for z in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, WIDTH)
        self.pos = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH, eps=1e-5, bias=False)
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                residual = name.endswith(("proj.weight", "fc2.weight"))
                nn.init.normal_(p, std=INIT_STD / math.sqrt(2 * LAYERS) if residual else INIT_STD)

    def forward(self, tokens, targets, reduction="mean"):
        x = self.tok(tokens) + self.pos.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.ln(x) @ self.tok.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction)


def load_symbols(path):
    """Returns the training symbols, the validation symbols and the vocabulary size."""
    text = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    alphabet, symbols = np.unique(text, return_inverse=True)
    symbols = torch.from_numpy(symbols.astype(np.int64))
    cut = len(symbols) * 9 // 10
    return symbols[:cut], symbols[cut:], len(alphabet)


def learning_rate(step, steps):
    if step < WARMUP_STEPS:
        return MAX_RATE * (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / (steps - WARMUP_STEPS)
    return MIN_RATE + 0.5 * (1 + math.cos(math.pi * progress)) * (MAX_RATE - MIN_RATE)


def random_batch(symbols):
    starts = torch.randint(len(symbols) - CONTEXT, (BATCH, 1))
    windows = symbols[starts + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


def train(model, symbols, steps):
    """Returns the total seconds and the milliseconds of each step."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    gains = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=WEIGHT_DECAY), dict(params=gains, weight_decay=0.0)],
        lr=MAX_RATE, betas=BETAS, eps=ADAM_EPS)
    step_ms = []
    training_begin = time.perf_counter()
    for step in range(steps):
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss = model(*random_batch(symbols))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        batch_loss = loss.item()
        step_ms.append(1e3 * (time.perf_counter() - begin))
        if step % LOG_EVERY == 0 or step == steps - 1:
            print(f"step {step}: batch loss {batch_loss:.4f}", file=sys.stderr)
    return time.perf_counter() - training_begin, step_ms


@torch.no_grad()
def whole_split_loss(model, symbols, windows_at_once=128):
    tokens, targets = symbols[:-1], symbols[1:]
    full = len(tokens) // CONTEXT * CONTEXT
    batches = list(zip(tokens[:full].view(-1, CONTEXT).split(windows_at_once),
                       targets[:full].view(-1, CONTEXT).split(windows_at_once)))
    if full < len(tokens):
        batches.append((tokens[None, full:], targets[None, full:]))
    return sum(model(x, y, reduction="sum").item() for x, y in batches) / len(targets)


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--text", type=pathlib.Path, required=True, metavar="FILE")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--steps", type=int, default=2000)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    args = ap.parse_args()
    if args.steps < 1:
        ap.error("--steps must be at least 1")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    train_symbols, validation_symbols, vocab = load_symbols(args.text)
    model = Gpt(vocab)
    seconds, step_ms = train(model, train_symbols, args.steps)
    result = dict(
        torch=torch.__version__, seed=args.seed, steps=args.steps, threads=args.threads,
        parameters=sum(p.numel() for p in model.parameters()),
        validation_targets=len(validation_symbols) - 1,
        validation_loss=round(whole_split_loss(model, validation_symbols), 5),
        training_seconds=round(seconds, 2), step_ms=round(statistics.median(step_ms), 3))
    if args.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{key}: {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
