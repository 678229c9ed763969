#!/usr/bin/env python3
"""PyTorch side of bench_forms: the forms of attention that it can train on a CPU, forward and backward.

One line of JSON a form: its name, fwd_bwd_ms (median), and the ratio to the plain causal kernel measured before it.
Soft-cap, ALiBi without a stored bias, relative positions, sinks and score functions have no kernel there.
Usage: torch_forms.py --threads 2 [--length 4096] [--heads 8] [--width 64] [--rounds 3]
Needs: pip install torch==2.13.0
"""
import argparse
import json
import statistics
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as attention


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in dict(threads=2, length=4096, heads=8, width=64, rounds=3).items():
        ap.add_argument("--" + name, type=int, default=default)
    return ap.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    n, heads, width = args.length, args.heads, args.width
    q, k, v = (torch.randn(1, heads, n, width, requires_grad=True) for _ in range(3))
    few_k, few_v = (torch.randn(1, max(1, heads // 4), n, width, requires_grad=True) for _ in range(2))
    dy = torch.randn(1, heads, n, width)
    at = torch.arange(n)
    causal = at[None, :] <= at[:, None]
    window = causal & (at[None, :] > at[:, None] - 256)
    documents = causal & ((at * 4 // n)[None, :] == (at * 4 // n)[:, None])
    bias = torch.randn(1, heads, n, n).masked_fill(~causal, float("-inf")).requires_grad_()
    learned = (q, k, v, few_k, few_v, bias)

    forms = {
        "plain causal": lambda: attention(q, k, v, is_causal=True),
        "not causal": lambda: attention(q, k, v),
        "window of 256": lambda: attention(q, k, v, attn_mask=window),
        "four packed documents": lambda: attention(q, k, v, attn_mask=documents),
        "2 key heads": lambda: attention(q, few_k, few_v, is_causal=True, enable_gqa=True),
        "bias, with its gradient": lambda: attention(q, k, v, attn_mask=bias),
        "dropout 0.1": lambda: attention(q, k, v, is_causal=True, dropout_p=0.1),
    }

    def time_ms(form):
        for x in learned:
            x.grad = None
        begin = time.perf_counter()
        form().backward(dy)
        return 1e3 * (time.perf_counter() - begin)

    for name, form in forms.items():
        time_ms(form)
        plain, mine = [], []
        for _ in range(args.rounds):
            plain.append(time_ms(forms["plain causal"]))
            mine.append(time_ms(form))
        ratios = [a / b for a, b in zip(mine, plain)]
        print(json.dumps(dict(name=name, fwd_bwd_ms=round(statistics.median(mine), 3),
                              ratio=round(statistics.median(ratios), 3))), flush=True)


if __name__ == "__main__":
    main()
