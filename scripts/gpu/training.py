"""One run of `sluice train`: its file, its steps, what its metrics say."""
import array
import contextlib
import json
import random
import shutil
import statistics

import parts

WARM_UP = 3  # steps that do not count: the first two are not like the others
MEASURED = 8  # steps that do
FEWEST = 3  # of these, where time runs out

# What refusals for want of room say: a tier, the disk of the tier and the weights, a workspace.
NO_ROOM = ("too small", "needed for weights", "of its workspace")

# Where weights, gradients and the optimizer's state live. auto is where the optimizer works.
PLACEMENTS = {
    "hbm": ("none", "none", "none"),
    "dram": ("none", "auto", "cpu"),
    "state": ("none", "none", "cpu"),
    "nvme": ("none", "auto", "nvme"),
}


def tokens_file(folder, vocab, tokens):
    """A file of random ids, as data.train takes it."""
    path = folder / f"random-{vocab}-{tokens}.bin"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        kind = "H" if vocab <= 1 << 16 else "I"
        ids = array.array(kind, random.Random(1).choices(range(vocab), k=tokens))
        path.with_suffix(".partial").write_bytes(ids.tobytes())
        path.with_suffix(".partial").replace(path)
    return path


def run_file(shape, layers, placement, batch, data, folder):
    """The run as a run file has it; its nvme tier is in its folder."""
    weights, gradients, state = PLACEMENTS[placement]
    return {
        "version": 1,
        "name": "run",
        "output_dir": str(folder / "run"),
        "model": {"config": shape.config(layers)},
        "data": {"train": str(data), "seq_len": batch.seq_len},
        "train": {"steps": 100000, "train_micro_batch_size_per_gpu": batch.micro_batch,
                  "gradient_accumulation_steps": batch.micro_batches, "resume": "never"},
        "precision": {"compute": "bf16"},
        "scheduler": {"type": "constant", "warmup_steps": 0},
        "zero_optimization": {"offload_param": {"device": weights},
                              "offload_gradient": {"device": gradients},
                              "offload_optimizer": {"device": state}},
        "checkpoint": {"every": None, "save_on_signal": False},
        "logging": {"progress": False},
    }


class Runs:
    """Runs of one program, one at a time. Logs stay in `folder`; what else a run writes is in a
    folder of `drive` that goes with it, or with the next one where this process was killed."""

    def __init__(self, program, folder, drive, settings):
        self.program, self.folder, self.drive, self.settings = program, folder, drive, settings

    def command(self, scratch, shape, layers, placement, batch):
        data = tokens_file(self.folder / "data", shape.vocab, 4 * batch.tokens + 1)
        file = scratch / "run.yaml"  # JSON is YAML
        run = run_file(shape, layers, placement, batch, data, scratch)
        file.write_text(json.dumps(run, indent=1), encoding="utf-8")
        return [*self.program, "train", str(file), *self.settings]

    @contextlib.contextmanager
    def scratch(self):
        folder = self.drive.resolve() / "gpu-run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def log(self, name):
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        return self.folder / "logs" / f"{name}.log"

    def fits(self, name, limit, *wanted):
        """Whether the program says that it would fit."""
        with self.scratch() as scratch:
            command = self.command(scratch, *wanted) + ["--dry-run"]
            code = parts.run(command, self.log(name), limit)
        if code != 0 and self.status(name) != "unfit":
            raise parts.Ended("failed", self.why(name, code))
        return code == 0

    def steps(self, name, limit, *wanted):
        """The metrics of a run's steps, as far as it came in the time."""
        with self.scratch() as scratch:
            command = self.command(scratch, *wanted)
            metrics = scratch / "run" / "metrics.jsonl"
            try:
                code = parts.run(command, self.log(name), limit,
                                 watch=lambda: len(rows_of(metrics)) >= WARM_UP + MEASURED)
            except parts.OutOfTime:
                if len(rows_of(metrics)) < WARM_UP + FEWEST:
                    raise
                code = 0
            rows = rows_of(metrics)
            if metrics.exists():
                shutil.copy(metrics, self.log(name).with_suffix(".jsonl"))
        if code != 0:
            raise parts.Ended(self.status(name), self.why(name, code))
        return rows

    def status(self, name):
        """What a run came to that has ended with an error. Its exit code is that of a broken device
        too, and of an environment that lacks something: only the words tell them apart."""
        errors = [line for line in parts.last_lines(self.log(name), 40) if line[:6] == "error:"]
        return "unfit" if any(words in line for line in errors for words in NO_ROOM) else "failed"

    def why(self, name, code):
        lines = parts.last_lines(self.log(name), 40)
        errors = [line for line in lines if line.startswith("error:")] or lines[-1:]
        return f"exit code {code}: {errors[0] if errors else 'no output'}"


def rows_of(metrics):
    """The whole lines of a metrics.jsonl that may be being written."""
    if not metrics.exists():
        return []
    return [json.loads(line) for line in metrics.read_text(encoding="utf-8").split("\n")[:-1]]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def numbers_of(rows):
    """What the rows of metrics.jsonl say of a step."""
    rows = rows[WARM_UP:]
    if not rows:
        raise parts.Ended("failed", f"the run ended within {WARM_UP} steps")
    seconds = spread([row["seconds"] for row in rows])
    bounds = [row["bound"] for row in rows]
    return {
        "steps": len(rows),
        "tokens_per_step": rows[0]["tokens"],
        "step_seconds": seconds,
        "tokens_per_s": rows[0]["tokens"] / seconds["median"],
        "tflops": rows[0]["flops"] / seconds["median"] / 1e12,
        "bound": statistics.mode(bounds),
        "bound_share": statistics.median(row["bound_share"] for row in rows),
        "lanes": {lane: lane_of([row["lanes"][lane] for row in rows]) for lane in rows[0]["lanes"]},
        "gpu_bytes": rows[-1]["gpu_bytes"],
        "cpu_bytes": rows[-1]["cpu_bytes"],
        "nvme_bytes_per_step": statistics.mean(row["nvme_read_bytes"] + row["nvme_write_bytes"]
                                               for row in rows),
        # How much longer than what its busiest lane does.
        "step_over_busiest_lane": statistics.median(1 / row["bound_share"] for row in rows),
    }


def lane_of(shares):
    """The means of what metrics.jsonl has of a lane in some steps."""
    idle = [share.get("idle", {}) for share in shares]  # none where it never waited
    waits = {wait for of_step in idle for wait in of_step}
    return {"busy": statistics.mean(share["busy"] for share in shares),
            "idle": {wait: statistics.mean(of_step.get(wait, 0) for of_step in idle)
                     for wait in sorted(waits)}}
