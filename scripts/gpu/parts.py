"""Work in parts, over as many calls as it takes: what is done is noted, and not done again."""
import dataclasses
import fnmatch
import json
import os
import signal
import subprocess
import time
import traceback
from typing import Callable

LONGEST = 420  # seconds, and at its end the grace of a stop: calls of under 10 minutes are enough
OK, FAILED, LEFT = 0, 1, 75  # exit codes

# CUDA's first card is nvidia-smi's.
ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

# What became of a part. An unfit one was refused by the program: there is no room for it here.
DONE = ("ok", "skipped", "unfit")


class Ended(Exception):
    """A part that came to no result; `status` says why not, `details` what else there is to say."""

    def __init__(self, status, why, **details):
        super().__init__(why)
        self.status, self.details = status, details


class OutOfTime(Exception):
    """A command was ended at its limit."""


class Deadline:
    """For several commands within one limit."""

    def __init__(self, limit):
        self.end = time.monotonic() + limit

    def left(self):
        return max(0.0, self.end - time.monotonic())


@dataclasses.dataclass
class Part:
    name: str
    run: Callable[[float], dict]  # given the seconds that it may take; may raise Ended, OutOfTime
    need: float = 60  # seconds that must be left to begin it


def store(path, value):
    """Whole or not at all: a call may be ended at any time."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def load(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


class Parts:
    """The parts of one folder, `out`, with what became of each in out/parts/NAME.json."""

    def __init__(self, out, parts):
        self.folder = out / "parts"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.parts = parts

    def result(self, name):
        return load(self.folder / f"{name}.json")

    def status(self, name):
        result = self.result(name)
        return result["status"] if result else "left"

    def in_turn(self):
        """What is to be done: first what a call cut short, last what has failed before. A part that
        fails again and again holds up no other."""
        turns = {"cut": 0, "left": 1, "failed": 2}
        rest = [part for part in self.parts if self.status(part.name) in turns]
        rest.sort(key=lambda part: turns[self.status(part.name)])
        fresh = [part for part in rest if self.status(part.name) != "failed"]
        return fresh or rest

    def work(self, most):
        """Does parts for `most` seconds; an exit code."""
        deadline = Deadline(most)
        for number, part in enumerate(self.in_turn()):
            left = deadline.left()
            if number > 0 and left < part.need:
                continue
            whole = left >= LONGEST or self.status(part.name) == "cut"
            self.take(part, min(left, LONGEST), whole)
        return self.code()

    def take(self, part, limit, whole):
        print(f"{part.name} ...", flush=True)
        begin = time.monotonic()
        try:
            result = {"status": "ok"} | part.run(limit)
        except Ended as ended:
            result = {"status": ended.status, "why": str(ended)} | ended.details
        except OutOfTime as late:
            # A later call begins with this part, and has more time for it.
            result = {"status": "failed" if whole else "cut", "why": str(late)}
        except Exception as broken:  # it must not keep the others from their turn
            result = {"status": "failed", "why": repr(broken),
                      "tail": traceback.format_exc().splitlines()}
        result |= {"part": part.name, "took": round(time.monotonic() - begin, 1)}
        store(self.folder / f"{part.name}.json", result)
        why = f": {result['why']}" if "why" in result else ""
        print(f"{part.name}: {result['status']}, {result['took']:.0f} s{why}", flush=True)

    def results(self):
        return [self.result(part.name) or {"part": part.name, "status": "left"}
                for part in self.parts]

    def chosen(self, patterns):
        """Those whose names match one of the patterns."""
        return Parts(self.folder.parent, [part for part in self.parts if any(
            fnmatch.fnmatch(part.name, pattern) for pattern in patterns)])

    def counts(self):
        states = [result["status"] for result in self.results()]
        counts = {state: states.count(state) for state in (*DONE, "failed")}
        return counts | {"left": states.count("left") + states.count("cut")}

    def code(self):
        counts = self.counts()
        return LEFT if counts["left"] else FAILED if counts["failed"] else OK


def run(command, log, limit, env=None, cwd=None, watch=lambda: False, grace=45):
    """The exit code of a command whose output goes to the file `log`. Once `watch` says so, or at
    the limit, it is asked to stop (SIGTERM), and after `grace` seconds made to."""
    deadline = Deadline(limit)
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=cwd,
                                   env=os.environ | ENVIRONMENT | (env or {}), stdin=subprocess.DEVNULL,
                                   preexec_fn=os.setpgrp)
    try:
        while process.poll() is None:
            if watch():
                stop(process, grace)
                return 0
            if deadline.left() == 0:
                stop(process, grace)
                raise OutOfTime(f"did not end within {limit:.0f} s; {log.name}")
            time.sleep(0.1)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode


def stop(process, grace):
    """The whole group of a process: a shell or compute-sanitizer stands between us and it."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_lines(log, lines=20):
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        return file.read().decode("utf-8", "replace").splitlines()[-lines:]
