#!/usr/bin/env python3
"""Times attngrad beside PyTorch: attention, training steps, single ops. A table on stdout, progress on stderr.

Both sides run alternately, one process at a time, and each figure is the median over the rounds. x is the time of the
other side divided by ours (above 1: we are faster), followed by the least and the most of the pairs' ratios.
PyTorch is taken from the interpreter given; without it our side is timed alone.
"""
import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time

from load import ForeignLoad
from pair import Pair, say
from table import print_table, results

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
GROUPS = ("attention", "training", "ops")  # what is run unless --only says otherwise
ALL_GROUPS = (*GROUPS, "forms", "decode")
INSTALL = "python3 -m venv DIR && DIR/bin/pip install torch==2.13.0 numpy " \
          "--extra-index-url https://download.pytorch.org/whl/cpu"

FULL = dict(
    rounds=5, limit_s=900, patience_s=60, seconds=0.2, op_seconds=0.3,
    shapes="4x4x64x32,1x8x256x64,1x8x512x64,1x8x1024x64,1x8x2048x64,1x8x4096x64,1x4x2048x128",
    composed="1x8x1024x64,1x8x2048x64", steps=dict(micro=1500, tiny=25, small=5, long=10), forward_steps=8)
QUICK = dict(
    rounds=2, limit_s=165, patience_s=15, seconds=0.1, op_seconds=0.1, shapes="4x4x64x32,1x8x512x64,1x8x1024x64",
    composed="1x8x1024x64", steps=dict(micro=300, tiny=12, small=3), forward_steps=4)


# ---- the command line ----------------------------------------------------------------------------------------------


def arguments():
    cores = len(os.sched_getaffinity(0))

    def threads(text):
        try:
            counts = sorted({int(part) for part in text.split(",")})
        except ValueError:
            raise argparse.ArgumentTypeError(f"needs whole numbers separated by commas, got {text!r}")
        if counts[0] < 1 or counts[-1] > cores:
            raise argparse.ArgumentTypeError(f"each must be from 1 to {cores}, the cores there are, got {text!r}")
        return counts

    def groups(text):
        chosen = text.split(",")
        if not set(chosen) <= set(ALL_GROUPS):
            raise argparse.ArgumentTypeError(f"needs some of {','.join(ALL_GROUPS)}, got {text!r}")
        return [group for group in ALL_GROUPS if group in chosen]

    def rounds(text):
        if not text.isdigit() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
        return int(text)

    ap = argparse.ArgumentParser(prog="./tests/bench/run", description=__doc__, allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("programs", help=argparse.SUPPRESS)  # the folder of bench_*; the script gives it
    ap.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # of the arguments only
    ap.add_argument("--quick", action="store_true", help="less of everything: 3 minutes in place of 15")
    ap.add_argument("--json", action="store_true", help="one JSON document in place of the table")
    ap.add_argument("--threads", type=threads, default="1,2" if cores > 1 else "1",
                    help="counts to measure with, separated by commas (default: %(default)s)")
    ap.add_argument("--only", type=groups, default=",".join(GROUPS),
                    help="some of %(default)s,forms,decode; the last: every form of attention, tokens with a cache")
    ap.add_argument("--python", metavar="PATH", default=os.environ.get("ATTNGRAD_PEER_PYTHON") or "python3",
                    help="the interpreter that has PyTorch (default: $ATTNGRAD_PEER_PYTHON, else python3)")
    ap.add_argument("--compile", action="store_true", help="train with torch.compile too")
    ap.add_argument("--rounds", type=rounds, metavar="N",
                    help="alternations (default: 5, with --quick 2, fewer when the time is up; N lifts that limit)")
    return ap.parse_args()


# ---- what is run ---------------------------------------------------------------------------------------------------


def sides_of(options, peer, threads, program, script, arguments, ours=(), torch=()):
    """The commands of both sides, which share their arguments; without a peer, of ours."""
    shared = [*arguments, "--threads", str(threads)]
    sides = dict(ours=[os.path.join(options.programs, program), *shared, *ours])
    if peer:
        sides["torch"] = [options.python, os.path.join(PEERS, script), *shared, *torch]
    return sides


def attention_pair(options, size, peer, threads):
    how = ["--seconds", str(size["seconds"])]
    sides = sides_of(options, peer, threads, "bench_attention", "torch_attention.py",
                     [*how, "--shapes", size["shapes"]], ours=["--sgemm"])
    sides["composed"] = [*sides_of(options, None, threads, "bench_attention", None, how)["ours"],
                         "--shapes", size["composed"], "--kernel", "composed"]
    return Pair("attention", "attention", threads, sides)


def training_pair(options, peer, threads, config, steps, forward=()):
    sides = sides_of(options, peer, threads, "bench_training", "torch_gpt.py",
                     ["--config", config, "--warmup", str(min(steps, 25)), "--steps", str(steps), *forward])
    if peer and options.compile:
        sides["compiled"] = [*sides["torch"], "--compile"]
    return Pair("training", config + (", forward" if forward else ""), threads, sides)


def ops_pair(options, size, peer, threads):
    seconds, repetitions = size["op_seconds"], 5
    return Pair("ops", "single ops", threads, sides_of(
        options, peer, threads, "bench_ops", "torch_ops.py", [], torch=["--seconds", str(seconds)],
        ours=[f"--benchmark_min_time={seconds / repetitions}", f"--benchmark_repetitions={repetitions}",
              "--benchmark_report_aggregates_only=true", "--benchmark_format=json"]))


def forms_pair(options, peer, threads):
    return Pair("forms", "forms of attention", threads, sides_of(
        options, peer, threads, "bench_forms", "torch_forms.py", ["--rounds", "3"], ours=["--json"]))


def decode_pair(options, peer, threads):
    return Pair("decode", "decoding", threads, sides_of(
        options, peer, threads, "bench_decode", "torch_decode.py", []))


def all_pairs(options, size, peer):
    chosen = []
    for threads in options.threads:
        if "attention" in options.only:
            chosen.append(attention_pair(options, size, peer, threads))
        if "training" in options.only:
            chosen += [training_pair(options, peer, threads, *one) for one in size["steps"].items()]
            chosen.append(training_pair(options, peer, threads, "small", size["forward_steps"], ["--forward"]))
        if "ops" in options.only:
            chosen.append(ops_pair(options, size, peer, threads))
        if "forms" in options.only:
            chosen.append(forms_pair(options, peer, threads))
        if "decode" in options.only:
            chosen.append(decode_pair(options, peer, threads))
    return chosen


def run_all(chosen, rounds, limit_s, patience_s):
    """Returns whether time was left for all rounds."""
    load, begin = ForeignLoad(patience_s), time.monotonic()
    for index in range(rounds):
        for pair in chosen:
            expected_s = pair.took_s or max(other.took_s for other in chosen)
            if time.monotonic() - begin + expected_s > limit_s:
                say("the time is up")
                return False
            say(f"round {index + 1} of {rounds}: {pair.name}, {pair.threads} thread{'s' * (pair.threads > 1)}")
            load.wait_for_quiet()
            pair.run(index, load)
    return True


# ---- the machine ---------------------------------------------------------------------------------------------------


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    except OSError:
        return "unknown"


def blas_core(programs):
    """OpenBLAS tells its core when it is loaded; the last word is that of the restarted program."""
    try:
        tell = subprocess.run([os.path.join(programs, "bench_training"), "--help"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=dict(os.environ, OPENBLAS_VERBOSE="2"))
    except OSError:
        return "unknown"
    cores = [line.split(":", 1)[1].strip() for line in tell.stderr.splitlines() if line.startswith("Core:")]
    return cores[-1] if cores else "unknown"


def peer_version(python):
    try:
        asked = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"attngrad: --python: {error}")
    if asked.returncode == 0:
        return asked.stdout.strip()
    last = (asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
    say(f"no PyTorch in {python} ({last}): timing our side alone")
    say("to compare, install it and give --python DIR/bin/python:", INSTALL)
    return None


def main():
    options = arguments()
    if options.check:
        return 0
    size = QUICK if options.quick else FULL
    limit_s = size["limit_s"] if options.rounds is None else float("inf")
    date = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    load_average = " ".join(f"{x:.2f}" for x in os.getloadavg())
    torch = peer_version(options.python)
    chosen = all_pairs(options, size, torch)
    complete = run_all(chosen, options.rounds or size["rounds"], limit_s, size["patience_s"])

    found = results(chosen)
    failures = [dict(failure, side=side) for pair in chosen for side, failure in pair.failures.items()]
    about = dict(date=date, processor=processor(), cores=len(os.sched_getaffinity(0)),
                 openblas_core=blas_core(options.programs), load_average=load_average, torch=torch,
                 rounds=max(len(pair.rows["ours"]) for pair in chosen), complete=complete)
    if options.json:
        print(json.dumps(dict(about, rows=found, failures=failures), indent=1))
    else:
        print_table(about, found)
    for failure in failures:
        say(f"failed ({failure['side']}): {failure['command']}")
    return 1 if failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, which ends the program that runs
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
