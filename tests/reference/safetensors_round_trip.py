#!/usr/bin/env python3
"""Shows that checkpoints are safetensors files like any other: one that is written here is read and written again by the
format's own Python package, and a training that goes on from it ends with the bits of one that goes on from the first.

  safetensors_round_trip.py BUILD/examples/train_transformer
Needs: pip install torch==2.13.0 numpy safetensors
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

STEADY = "--batch 2 --rate 0.001 --final-rate 0.001 --warmup 0 --sample 0 --threads 1".split()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    train = [sys.argv[1], *STEADY]
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs, on, again = (str(pathlib.Path(folder) / name) for name in ("ours", "theirs", "on", "again"))
        small = "--layers 2 --heads 2 --width 16 --context 8 --steps 3".split()
        subprocess.run([*train, *small, "--save", ours], check=True, stdout=subprocess.DEVNULL)

        tensors = load_file(ours)
        with safe_open(ours, framework="pt") as file:
            metadata = file.metadata()
        assert tensors and all(x.dtype == torch.float32 for x in tensors.values())
        save_file(tensors, theirs, metadata=metadata)

        for begin, end in ((ours, on), (theirs, again)):
            subprocess.run([*train, "--steps", "6", "--load", begin, "--save", end], check=True,
                           stdout=subprocess.DEVNULL)
        one, two = load_file(on), load_file(again)
        assert one.keys() == two.keys() == tensors.keys()
        moved = sum(not torch.equal(one[name], tensors[name]) for name in tensors)
        assert moved > 0 and all(torch.equal(one[name], two[name]) for name in one)
        print(f"{len(tensors)} tensors went to Python and back; {moved} of them trained on to the same bits")


if __name__ == "__main__":
    main()
