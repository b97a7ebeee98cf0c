"""What is there: the card, the host's memory, the programs."""
import argparse
import dataclasses
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import parts
from shapes import GIB

HERE = pathlib.Path(__file__).resolve().parent
USAGE, NOTHING_TO_RUN_ON = 2, 3  # exit codes


class Refused(Exception):
    """Nothing can be run so; its text says why not."""

    def __init__(self, why, code=NOTHING_TO_RUN_ON):
        super().__init__(why)
        self.code = code


@dataclasses.dataclass
class Box:
    card: str
    device: int  # bytes of the card
    host: int  # bytes of memory that are available
    disk: int  # bytes that are free in the folder of the nvme tier
    driver: str = ""


def card(pretended=None):
    """(name, bytes, driver) of the card that CUDA would take first. `pretended` is a size in GiB,
    for trying these scripts where there is none."""
    if pretended:
        return f"pretended, {pretended:g} GiB", int(pretended * GIB), ""
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version",
               "--format=csv,noheader,nounits"]
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    try:
        done = subprocess.run(command + (["-i", first] if first else []), text=True, timeout=60,
                              capture_output=True, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as failure:
        raise Refused(f"no GPU: nvidia-smi does not run here ({failure})") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise Refused(f"no GPU: nvidia-smi says: {(done.stdout + done.stderr).strip()}")
    name, mib, driver = done.stdout.splitlines()[0].rsplit(", ", 2)
    if not mib.isdigit():
        raise Refused(f"nvidia-smi says that {name} has {mib} MiB of memory")
    return name, int(mib) << 20, driver


def host_memory():
    """Bytes that a process may still take, its cgroup's limit included."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    kib = {line.split(":")[0]: line.split()[1] for line in lines}
    available = int(kib["MemAvailable"]) << 10
    limit = pathlib.Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()) != "max":
        available = min(available, int(text))
    return available


def box_of(nvme, pretended=None):
    name, size, driver = card(pretended)
    return Box(name, size, host_memory(), shutil.disk_usage(nvme).free, driver)


class Programs:
    """The programs of a bundle (`run NAME`), of a build folder, or of build/cuda of a checkout."""

    def __init__(self, folder=None):
        bundle = HERE.parent / "run"
        if folder is None and bundle.exists():
            self.home, self.paths = bundle.parent, {}
            for path in sorted((bundle.parent / "bin").iterdir()):
                self.paths[path.name] = [str(bundle), path.name]
            return
        self.home = HERE.parents[1]
        build = pathlib.Path(folder or self.home / "build" / "cuda").resolve()
        if not build.is_dir():
            raise Refused(f"no programs: {build} is no folder; cmake --preset cuda, then "
                          "cmake --build --preset cuda, or use a bundle (scripts/bundle.sh)")
        self.paths = {path.name: [str(path)] for path in sorted(executables(build))}

    def command(self, name):
        if name not in self.paths:
            raise Refused(f"no program {name} in {self.home}")
        return self.paths[name]

    def has(self, name):
        return name in self.paths

    def tests(self):
        return [name for name in self.paths if name.endswith("_test")]

    def digest(self, name):
        """Of the program's file; empty where there is none."""
        path = self.home / "bin" / name if (self.home / "bin").is_dir() else \
            pathlib.Path(self.paths.get(name, ["none"])[0])
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""

    def commit(self):
        noted = self.home / "commit"
        if noted.exists():
            return noted.read_text(encoding="utf-8").strip()
        asked = subprocess.run(["git", "-C", str(self.home), "describe", "--always", "--dirty"],
                               text=True, capture_output=True, check=False)
        return asked.stdout.strip()


def executables(build):
    for folder, subfolders, names in os.walk(build):
        subfolders[:] = [name for name in subfolders if name != "CMakeFiles"]
        for name in names:
            path = pathlib.Path(folder, name)
            if "." not in name and os.access(path, os.X_OK):
                yield path


def parser_of(name, about):
    parser = argparse.ArgumentParser(prog=name, description=about)
    parser.add_argument("out", type=pathlib.Path, help="the folder of the results")
    parser.add_argument("--most", type=float, default=500, metavar="SECONDS",
                        help="begin no part that this call has no time for (500)")
    parser.add_argument("--parts", nargs="+", default=["*"], metavar="PATTERN",
                        help="only these; * in a pattern matches anything")
    parser.add_argument("--list", action="store_true", help="what there is to do, and do nothing")
    parser.add_argument("--programs", type=pathlib.Path, metavar="BUILD",
                        help="a build folder, not the bundle's or build/cuda's programs")
    parser.add_argument("--card-gib", type=float,
                        help="take a card of this size to be there: tries this script without one")
    return parser


def claim(options, box, programs):
    """A folder of results belongs to one card, one build and one choice of settings."""
    out = options.out
    found = {"card": box.card, "driver": box.driver, "commit": programs.commit(),
             "sluice": programs.digest("sluice"), "set": getattr(options, "set", []),
             "nvme": str(getattr(options, "nvme", None) or out)}
    before = parts.load(out / "box.json")
    if before not in (None, found):
        raise Refused(f"{out} has results of {before}, and here is {found}: choose another folder",
                      USAGE)
    parts.store(out / "box.json", found)
    return found


def work(options, name, box, programs, every, summary):
    """Does what `options` choose of `every` part, and writes out/NAME.json and .txt, with what
    `summary` makes of the results: (more to write, text). The exit code."""
    chosen = every.chosen(options.parts)
    if options.list:
        for result in chosen.results():
            print(f"{result['status']:8} {result['part']}")
        return parts.OK
    found = claim(options, box, programs) | {"host_memory": box.host}
    code = chosen.work(options.most)
    found |= {"counts": chosen.counts(), "parts": every.results()}
    more, text = summary(found)
    counts = ", ".join(f"{count} {state}" for state, count in found["counts"].items() if count)
    text = f"{text}parts: {counts}\n"
    parts.store(options.out / f"{name}.json", found | more)
    (options.out / f"{name}.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    return code


def main(command):
    """Ends with what `command` returns; a refusal is a message and an exit code."""
    # An exception, so that nothing that was started is left behind.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        sys.exit(command())
    except Refused as refused:
        print(f"gpu_{pathlib.Path(sys.argv[0]).stem}.sh: {refused}", file=sys.stderr)
        sys.exit(refused.code)
