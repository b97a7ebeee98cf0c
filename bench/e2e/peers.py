"""What the scripts of this folder share: sluice and another program train the same model by turns."""
import argparse
import array
import dataclasses
import fnmatch
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "gpu"))
import shapes  # pylint: disable=wrong-import-position

SLUICE = os.path.join(ROOT, "build", "release", "engine", "app", "sluice")
PYTHON = os.path.join(ROOT, ".deps", "peers", "bin", "python")
MODELS = {"gpt2": shapes.GPT2_124M, "llama": shapes.SHAPES["200m"].config(12)}
WARM_UP = 3  # steps that do not count, of both: torch_baseline.py has the same number
MISSING = 3  # exit code: this machine lacks something
MIB, GIB = 1 << 20, 1 << 30

# glibc gives large blocks back to the system and faults them in again, unless it is told not to:
# faster, but with more memory.
KEEPS_PAGES = {"MALLOC_TOP_PAD_": str(64 * MIB), "MALLOC_MMAP_MAX_": "0",
               "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


@dataclasses.dataclass
class Case:
    name: str
    model: str
    compute: str
    seq_len: int
    micro_batch: int
    micro_batches: int
    settings: dict = dataclasses.field(default_factory=dict)  # of sluice's run file

    @property
    def tokens(self):
        return self.seq_len * self.micro_batch * self.micro_batches


@dataclasses.dataclass
class Run:
    """Of one program: the seconds of its steps after the warm-up, and the most it had resident."""
    steps: list
    resident: int
    first_loss: float
    loss: float
    parameters: int = 0

    @property
    def seconds(self):
        return statistics.median(self.steps)


class PeerEnded(RuntimeError):
    """The other program did not come to its end."""


def fail(message, code=1):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(code)


def threads():
    return len(os.sched_getaffinity(0))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")),
                   os.uname().machine)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return f"machine: {cpu}, {threads()} cores, {memory:.0f} GiB"


def build():
    done = subprocess.run([os.path.join(ROOT, "sluice"), "--version"], check=False,
                          stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        fail("sluice does not build; the reason stands above", done.returncode)


def install(*what):
    done = subprocess.run([os.path.join(ROOT, "scripts", "install.sh"), *what], check=False)
    if done.returncode != 0:
        fail(f"scripts/install.sh {' '.join(what)} failed; the reason stands above", MISSING)


def tokens_file(folder, model, tokens):
    """Small ids are frequent, as in text, so that there is something to learn."""
    vocab, draw = MODELS[model]["vocab_size"], random.Random(1).random
    path = os.path.join(folder, "tokens.bin")
    with open(path, "wb") as file:
        array.array("H", (int(vocab * draw()**4) for _ in range(tokens))).tofile(file)
    return path


def run_to_end(words, log, environment):
    """Its exit code, and the most that it had resident."""
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT,
                                   env=os.environ | environment)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024


def last_lines(path, count=5):
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-count:]).strip()


def sluice(case, steps, folder, scratch):
    run = os.path.join(scratch, "run")
    file = {
        "version": 1, "name": "run", "output_dir": run, "model": {"config": MODELS[case.model]},
        "data": {"train": os.path.join(folder, "tokens.bin"), "seq_len": case.seq_len},
        "train": {"steps": WARM_UP + steps, "resume": "never",
                  "train_micro_batch_size_per_gpu": case.micro_batch,
                  "gradient_accumulation_steps": case.micro_batches},
        "precision": {"compute": case.compute},
        "optimizer": {"lr": 1e-4}, "scheduler": {"type": "constant", "warmup_steps": 0},
        "compute": {"threads": threads()}, "cpu_adam": {"threads": threads()},
        "checkpoint": {"every": None, "save_on_signal": False}, "logging": {"progress": False},
    } | case.settings
    path, log = os.path.join(scratch, "run.yaml"), os.path.join(scratch, "sluice.log")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(file, out)  # JSON is YAML
    code, resident = run_to_end([SLUICE, "train", path], log, {})
    if code != 0:
        raise RuntimeError(f"{case.name}: sluice ended with {code}:\n{last_lines(log)}")
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return Run([row["seconds"] for row in rows[WARM_UP:]], resident,
               rows[0]["loss"], rows[-1]["loss"])


def python(program, more, case, steps, folder, scratch, allocator=KEEPS_PAGES):
    """A training program of the peers' environment: its words before and after the model's file. Its
    last line is JSON. `allocator`: settings of glibc's."""
    config, log = os.path.join(scratch, "config.json"), os.path.join(scratch, "peer.log")
    with open(config, "w", encoding="utf-8") as out:
        json.dump(MODELS[case.model], out)
    words = [PYTHON, *program, config, *more, "--data", os.path.join(folder, "tokens.bin"),
             "--steps", str(steps), "--seq-len", str(case.seq_len),
             "--micro-batch", str(case.micro_batch), "--micro-batches", str(case.micro_batches)]
    environment = {"OMP_NUM_THREADS": str(threads()), **allocator}
    code, resident = run_to_end(words, log, environment)
    if code != 0:
        raise PeerEnded(f"{case.name}: {os.path.basename(program[0])} ended with {code}:\n"
                        f"{last_lines(log)}")
    said = json.loads(last_lines(log, 1))
    return Run(said["seconds"], resident, said["first_loss"], said["loss"],
               said["parameters"])


def learns(case, name, run):
    """Both do the same work: the loss begins near that of guessing, and falls."""
    guess = math.log(MODELS[case.model]["vocab_size"])
    if not (abs(run.first_loss / guess - 1) < 0.1 and run.loss < run.first_loss):
        raise RuntimeError(f"{case.name}: {name}'s loss went from {run.first_loss:.3f} to "
                           f"{run.loss:.3f}; it should fall from about {guess:.2f}")


def in_turn(case, pairs, steps, folder, peer):
    """Runs of both, who is first changing from pair to pair, and the least that the other has resident,
    also where its allocator is as it comes. `peer`: its name, and what runs it with the arguments of
    `sluice`, and then with an allocator's settings."""
    name, other = peer
    runs = {"sluice": [], name: []}
    turns = [("sluice", sluice), (name, other)]
    tokens_file(folder, case.model, case.tokens * (WARM_UP + steps + 2))
    for pair in range(pairs):
        for who, run in turns if pair % 2 == 0 else reversed(turns):
            with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as scratch:
                runs[who].append(run(case, steps, folder, scratch))
            learns(case, who, runs[who][-1])
        print(f"# {case.name} pair {pair + 1}: " + ", ".join(
            f"{who} {of[-1].seconds:.3f} s" for who, of in runs.items()), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as scratch:
        lean = other(case, 1, folder, scratch, {})
    least = min(lean.resident, statistics.median(run.resident for run in runs[name]))
    return runs["sluice"], runs[name], least


LINE = "{:<20} {:>10} {:>6} {:>8} {:>8} {:>5} {:>12} {:>7} {:>10} {:>9} {:>13} {:>12}"
HEAD = ("case", "parameters", "tokens", "s sluice", "s other", "rate", "min .. max", "fastest",
        "GiB sluice", "GiB other", "losses sluice", "losses other")


def row(case, ours, theirs, their_resident):
    ratios = [b.seconds / a.seconds for a, b in zip(ours, theirs)]
    our_fastest, their_fastest = (min(min(run.steps) for run in runs) for runs in (ours, theirs))

    def of(runs, key):
        return statistics.median(getattr(run, key) for run in runs)

    return (case.name, f"{theirs[0].parameters / 1e6:.1f}M", case.tokens,
            f"{of(ours, 'seconds'):.3f}", f"{of(theirs, 'seconds'):.3f}",
            f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f} .. {max(ratios):.2f}",
            f"{their_fastest / our_fastest:.2f}",
            *(f"{resident / GIB:.2f}" for resident in (of(ours, "resident"), their_resident)),
            *(f"{runs[0].first_loss:.2f} {runs[0].loss:.2f}" for runs in (ours, theirs)))


def parser_of(document, pairs, steps):
    """Of the options that all scripts of this folder have."""
    parser = argparse.ArgumentParser(description=document,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=pairs, help=f"of runs, of each case ({pairs})")
    parser.add_argument("--steps", type=int, default=steps,
                        help=f"of a run that count, after {WARM_UP} more ({steps})")
    parser.add_argument("--folder", metavar="FOLDER",
                        help="for the runs and what they offload; one of runs/ without")
    return parser


def parsed(parser):
    options = parser.parse_args()
    if options.pairs < 1 or options.steps < 1:
        parser.error("pairs and steps begin at 1")
    return options


def folder_of(options):
    """A new one, which goes with the block that it is for."""
    runs = options.folder or os.path.join(ROOT, "runs")
    os.makedirs(runs, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="peers-", dir=runs)


def options_of(document, pairs, steps, cases):
    parser = parser_of(document, pairs, steps)
    parser.add_argument("cases", nargs="*", metavar="CASE",
                        help="only these, * and ? match letters: " + ", ".join(
                            case.name for case in cases))
    options = parsed(parser)
    wanted = options.cases or ["*"]
    for name in wanted:
        if not any(fnmatch.fnmatch(case.name, name) for case in cases):
            parser.error(f"no case is called {name}")
    options.cases = [case for case in cases
                     if any(fnmatch.fnmatch(case.name, name) for name in wanted)]
    return options


def compare(options, peer):
    """All cases, printed as a table that grows."""
    print(machine())
    print(LINE.format(*HEAD))
    with folder_of(options) as folder:
        for case in options.cases:
            runs_of_both = in_turn(case, options.pairs, options.steps, folder, peer(case))
            print(LINE.format(*row(case, *runs_of_both)), flush=True)
