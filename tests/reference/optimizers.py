#!/usr/bin/env python3
"""Prints what PyTorch's optimisers do in double: the numbers of tests/optim/optimizers_test.cpp.

usage: python3 tests/reference/optimizers.py      (made with torch 2.13)
"""
import torch

START = [1.0, -2.0, 0.5, 0.0]
GRADIENTS = [[0.1, -0.2, 3.0, 0.0], [-0.4, 0.5, 1.0, 0.0], [0.2, 0.3, -2.0, 1e-3], [1.0, -1.0, 0.0, -5.0]]
RATE = 0.1

CASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=RATE, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=RATE, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=RATE, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
}

for name, make in CASES.items():
    w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    optimizer = make([w])
    for gradient in GRADIENTS:
        w.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
    print(name, [round(x, 12) for x in w.tolist()])
