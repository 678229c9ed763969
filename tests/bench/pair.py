"""Runs one side after the other and keeps what they printed."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

COMPOSED_ROUNDS = 2  # slow, and no close race


def say(*words):
    print("attngrad:", *words, file=sys.stderr, flush=True)


class Failed(Exception):
    pass


def run(command, load, on_line):
    """Runs the command and calls on_line with each line that it prints, as it comes."""
    environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="1")  # so that its children are not taken for others
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                       text=True, env=environment, start_new_session=True)
        except OSError as error:
            raise Failed(str(error))
        load.session = process.pid
        try:
            for line in process.stdout:
                on_line(line)
            status = process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            process.stdout.close()
            load.session = None
        if status != 0:
            errors.seek(0)
            how = f"exit code {status}" if status > 0 else f"signal {-status}"
            raise Failed(f"{how}\n{errors.read().rstrip()}")


def rows_of_lines(text):
    """Of one JSON object a line, named by its shape, model or op."""
    rows = (json.loads(line) for line in text.splitlines())
    return {row.get("shape") or row.get("config") or row["name"]: row for row in rows}


def rows_of_google(text):
    per_ms = {"ns": 1e6, "us": 1e3, "ms": 1, "s": 1e-3}
    return {result["run_name"].replace("/real_time", ""): {"ms": result["real_time"] / per_ms[result["time_unit"]]}
            for result in json.loads(text)["benchmarks"] if result.get("aggregate_name") == "median"}


class Pair:
    """The commands of each side that do the same work; in each round they run one after the other."""

    def __init__(self, group, name, threads, sides):
        self.group, self.name, self.threads, self.sides = group, name, threads, sides
        self.rows = {side: [] for side in sides}  # of each round, {row: figures}
        self.loaded = set()  # rows that were measured beside foreign load
        self.failures = {}
        self.took_s = 0

    def run(self, index, load):
        begin = time.monotonic()
        for side, command in self.sides.items():
            rows = {}
            if side not in self.failures and not (side == "composed" and index >= COMPOSED_ROUNDS):
                try:
                    rows = self.measure(command, load)
                except Failed as failure:
                    self.failures[side] = dict(command=" ".join(command), error=str(failure))
                    say(f"failed: {' '.join(command)}\n{failure}")
            self.rows[side].append(rows)
        self.took_s = time.monotonic() - begin

    def measure(self, command, load):
        lines, pending, loaded = [], [], []
        parse = rows_of_google if "--benchmark_format=json" in command else rows_of_lines

        def judge(found):
            if found:
                loaded.extend(pending)
            if found is not None:
                pending.clear()

        def on_line(line):
            lines.append(line)
            pending.append(line)
            judge(load.since_start(least_s=0.5))

        load.start()
        run(command, load, on_line)
        judge(load.since_start())
        try:
            rows = parse("".join(lines))
            if loaded:  # a document that comes at the end is marked as a whole
                self.loaded |= set(rows if parse is rows_of_google else parse("".join(loaded)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failed(f"its output cannot be read: {error!r}")
        return rows

    def row_names(self):
        return list(dict.fromkeys(row for rounds in self.rows.values() for rows in rounds for row in rows))

    def values(self, side, row, field):
        """{round: value}"""
        return {index: rows[row][field] for index, rows in enumerate(self.rows.get(side, [])) if row in rows}
