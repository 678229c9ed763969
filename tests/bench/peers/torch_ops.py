#!/usr/bin/env python3
"""PyTorch side of the benchmark of single ops: the names and shapes of ../ops.cpp, forward and backward.

One line of JSON an op: {"name", "threads", "ms"}, the median time of a call.
Usage: torch_ops.py --threads 2 [--only softmax,gelu] [--seconds 0.5]
Needs: pip install torch==2.13.0 numpy
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

BATCH, HEADS, CONTEXT, WIDTH, VOCABULARY = 4, 6, 256, 384, 65
TOKENS, PARAMETERS = BATCH * CONTEXT, 10770816


def median_ms(work, seconds):
    for _ in range(3):
        work()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def differentiated(f, inputs, dy):
    def work():
        for x in inputs:
            x.grad = None
        f().backward(dy)
    return work


def parameter(*shape):
    return torch.randn(*shape).requires_grad_()


def softmax():
    x = parameter(BATCH, HEADS, CONTEXT, CONTEXT)
    return differentiated(lambda: x.softmax(-1), [x], torch.randn(x.shape))


def layer_norm():
    x, gain, shift = parameter(BATCH, CONTEXT, WIDTH), parameter(WIDTH), parameter(WIDTH)
    return differentiated(lambda: F.layer_norm(x, (WIDTH,), gain, shift), [x, gain, shift], torch.randn(x.shape))


def gelu():
    x = parameter(BATCH, CONTEXT, 4 * WIDTH)
    return differentiated(lambda: F.gelu(x, approximate="tanh"), [x], torch.randn(x.shape))


def cross_entropy():
    x, targets = parameter(TOKENS, VOCABULARY), torch.randint(VOCABULARY, (TOKENS,))
    return differentiated(lambda: F.cross_entropy(x, targets), [x], torch.tensor(1.0))


def embedding():
    table, rows = parameter(VOCABULARY, WIDTH), torch.randint(VOCABULARY, (BATCH, CONTEXT))
    return differentiated(lambda: F.embedding(rows, table), [table], torch.randn(BATCH, CONTEXT, WIDTH))


def linear():
    x, w, b = parameter(BATCH, CONTEXT, WIDTH), parameter(4 * WIDTH, WIDTH), parameter(4 * WIDTH)
    return differentiated(lambda: F.linear(x, w, b), [x, w, b], torch.randn(BATCH, CONTEXT, 4 * WIDTH))


def adamw(**kind):
    w = parameter(PARAMETERS)
    w.grad = torch.randn(PARAMETERS)
    return torch.optim.AdamW([w], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, **kind).step


def adamw_fused():
    return adamw(fused=True)


def scalar_op():
    x = torch.ones((), requires_grad=True)

    def work():
        y = x
        for _ in range(1000):
            y = y.sin()
        x.grad = None
        y.backward()
    return work


OPS = dict(softmax=softmax, layer_norm=layer_norm, gelu=gelu, cross_entropy=cross_entropy, embedding=embedding,
           linear=linear, adamw=adamw, adamw_fused=adamw_fused,
           scalar_op=scalar_op)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--only", default=",".join(OPS))
    ap.add_argument("--seconds", type=float, default=0.5)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    for name in args.only.split(","):
        print(json.dumps(dict(name=name, threads=args.threads, ms=round(median_ms(OPS[name](), args.seconds), 5))),
              flush=True)


if __name__ == "__main__":
    main()
