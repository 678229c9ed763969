#!/usr/bin/env python3
"""PyTorch side of bench_decode: the same Llama-shaped models, decoded token by token with a cache, and a prompt.

The cache is one array of the whole context, keys and values are written in place; weights are random; float32;
inference_mode. One line of JSON a size: token_ms and prefill_ms, medians.
Usage: torch_decode.py --threads 2 [--config 100M]
Needs: pip install torch==2.13.0
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIGS = {  # vocabulary, width, layers, heads, key heads, hidden
    "260k": (512, 64, 5, 8, 4, 172),
    "10M": (8192, 320, 6, 5, 5, 864),
    "100M": (32000, 768, 12, 12, 12, 2048),
}
CONTEXT, PROMPT, DECODED = 768, 512, 32


class Block(nn.Module):
    def __init__(self, width, heads, key_heads, hidden):
        super().__init__()
        self.heads, self.key_heads, self.head = heads, key_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (heads + 2 * key_heads) * self.head, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, key_heads, CONTEXT, self.head))
        self.register_buffer("values", torch.zeros(1, key_heads, CONTEXT, self.head))

    def attend(self, x, past, cos, sin):
        new = x.shape[1]
        q, k, v = self.qkv(x).view(1, new, -1, self.head).transpose(1, 2).split(
            [self.heads, self.key_heads, self.key_heads], dim=1)
        q, k = (torch.cat([a * cos - b * sin, a * sin + b * cos], -1) for a, b in (z.chunk(2, -1) for z in (q, k)))
        self.keys[:, :, past:past + new] = k
        self.values[:, :, past:past + new] = v
        y = F.scaled_dot_product_attention(q, self.keys[:, :, :past + new], self.values[:, :, :past + new],
                                           is_causal=new > 1, enable_gqa=self.heads != self.key_heads)
        return self.projection(y.transpose(1, 2).reshape(1, new, -1))

    def forward(self, x, past, cos, sin):
        x = x + self.attend(self.norm1(x), past, cos, sin)
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Llama(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, key_heads, hidden):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, key_heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        half = width // heads // 2
        angles = torch.outer(torch.arange(CONTEXT), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, past):
        x = self.tokens(tokens)
        turn = slice(past, past + tokens.shape[1])
        for block in self.blocks:
            x = block(x, past, self.cos[turn], self.sin[turn])
        return self.norm(x) @ self.tokens.weight.t()


def median_ms(work, least_s=1.0, least_runs=5):
    work()
    times, begin = [], time.perf_counter()
    while len(times) < least_runs or time.perf_counter() - begin < least_s:
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--config", choices=CONFIGS)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    for name, config in CONFIGS.items():
        if args.config not in (None, name):
            continue
        model = Llama(*config)
        prompt = torch.randint(config[0], (1, PROMPT))

        def decode():
            for i in range(DECODED):
                model(torch.randint(config[0], (1, 1)), PROMPT + i)

        with torch.inference_mode():
            prefill = median_ms(lambda: model(prompt, 0))
            token = median_ms(decode) / DECODED
        print(json.dumps(dict(config=name, threads=args.threads, parameters=sum(p.numel() for p in model.parameters()),
                              token_ms=token, tokens_per_s=1e3 / token, prefill_ms=prefill)), flush=True)


if __name__ == "__main__":
    main()
