"""scripts/gpu_bench.sh OUT - what sluice and plain PyTorch do on this card, in numbers."""
import functools
import json
import pathlib
import sys

import box as boxes
import parts
import shapes
import table
import training

# Tokens per step of each shape and placement (training.PLACEMENTS), what is asked for most first.
# How many layers of the shape fit is found out before, at the most of these tokens.
SWEEP = [16384, 4096, 32768, 65536, 8192, 2048]
WANTED = {
    "1.5b": {"hbm": [16384, 4096, 65536], "dram": SWEEP, "nvme": [16384]},
    "8b": {"hbm": [16384, 4096], "dram": SWEEP},
    "14b": {"dram": [65536], "nvme": [65536]},
    "largest": {"state": [16384], "nvme": [16384]},
    "tiny": {"hbm": [256, 1024], "dram": [128, 256, 512, 1024], "nvme": [256]},
}
DEFAULT_SHAPES = ["1.5b", "8b", "14b", "largest"]
TORCH_TOKENS = {"1.5b": 16384, "8b": 16384, "tiny": 256}
NEED = {"1.5b": 90, "8b": 240, "14b": 300, "largest": 300, "tiny": 30}  # seconds; a guess

BASELINE = boxes.HERE / "torch_baseline.py"
OUT_OF_MEMORY = 3  # its exit code


def arguments():
    parser = boxes.parser_of("gpu_bench.sh", __doc__.split(" - ")[1])
    parser.add_argument("--shapes", nargs="+", default=DEFAULT_SHAPES, choices=list(WANTED))
    parser.add_argument("--nvme", type=pathlib.Path, metavar="FOLDER",
                        help="a folder on the drive of the nvme tier (OUT)")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE",
                        help="more of every run's file, as tiers.gpu.limit=20GiB")
    return parser.parse_args()


class Bench:
    def __init__(self, options, box, programs):
        self.options, self.box, self.out = options, box, options.out
        self.device = "cpu" if options.card_gib else "cuda"
        self.programs = programs
        device = [] if options.card_gib else ["tiers.gpu.device=cuda"]
        self.runs = training.Runs(programs.command("sluice"), self.out, options.nvme or self.out,
                                  [*device, *options.set])

    def parts(self):
        part = functools.partial
        yield parts.Part("peak.matmul", part(self.torch, "peak.matmul", ["matmul"]), 60)
        yield parts.Part("peak.copy", part(self.torch, "peak.copy", ["copy"]), 60)
        if self.programs.has("sluice_bench"):
            yield parts.Part("peak.lanes", self.lanes, 90)
        for name in self.options.shapes:
            need = NEED[name]
            for placement, tokens in WANTED[name].items():
                yield parts.Part(f"fit.{name}.{placement}",
                                 part(self.fit, name, placement, max(tokens)), need)
                for count in tokens:
                    yield parts.Part(f"rate.{name}.{placement}.{count}",
                                     part(self.rate, name, placement, count), need)
            for mode in ("eager", "compile") if name in TORCH_TOKENS else ():
                yield parts.Part(f"torch.{name}.{mode}",
                                 part(self.plain, name, mode), need)

    def torch(self, name, words, limit):
        """What the baseline prints; its log is that of the part."""
        sizes = {"matmul": "256", "copy": "1048576"}
        if self.device == "cpu" and words[0] in sizes:
            words = [*words, "--size", sizes[words[0]]]
        log = self.runs.log(name)
        code = parts.run([sys.executable, str(BASELINE), *words, "--device", self.device], log,
                         limit)
        if code != 0:
            raise parts.Ended("unfit" if code == OUT_OF_MEMORY else "failed",
                              self.runs.why(name, code))
        result = json.loads(parts.last_lines(log, 1)[0])
        return {key: training.spread(value) if isinstance(value, list) else value
                for key, value in result.items()}

    def lanes(self, limit):
        """The copy lanes of a run, as sluice measures them: the median of the rounds of the most bytes."""
        file = self.out / "lanes.json"
        command = [*self.programs.command("sluice_bench"), "copy", "--quiet", "--json", str(file)]
        code = parts.run(command, self.runs.log("peak.lanes"), limit)
        if code != 0:
            raise parts.Ended("failed", self.runs.why("peak.lanes", code))
        rows = [row for row in parts.load(file)["benchmarks"] if not row["roof"]]
        rates = {}  # by lane, by bytes
        for row in rows:
            sizes = rates.setdefault(row["by"], {})
            sizes.setdefault(row["bytes"], []).append(row["bytes_per_second"])
        return {lane: training.spread(sizes[max(sizes)]) for lane, sizes in rates.items()}

    def fit(self, name, placement, tokens, limit):
        """How many layers of the shape the program takes."""
        shape = shapes.SHAPES[name]
        batch = shapes.batch_of(shape, tokens, self.box)
        guess = shapes.layers_by_count(shape, placement, batch, self.box)
        part = f"fit.{name}.{placement}"
        deadline = parts.Deadline(limit)
        layers = shapes.most(lambda layers: self.runs.fits(part, deadline.left(), shape, layers,
                                                           placement, batch), shape.layers, guess)
        if layers == 0:
            raise parts.Ended("unfit", f"not one layer fits: {self.runs.why(part, 3)}")
        return {"layers": layers, "of": shape.layers, "guess": guess,
                "parameters": shape.parameters(layers)}

    def rate(self, name, placement, tokens, limit):
        shape = shapes.SHAPES[name]
        fit = parts.load(self.out / "parts" / f"fit.{name}.{placement}.json")
        if not fit or fit["status"] != "ok":
            raise parts.Ended(fit["status"] if fit else "failed",
                              f"no fit.{name}.{placement} to go by: it comes first")
        try:
            rows = self.runs.steps(f"rate.{name}.{placement}.{tokens}", limit, shape, fit["layers"],
                                   placement, shapes.batch_of(shape, tokens, self.box))
        except parts.Ended as ended:  # there was room a moment ago: to be tried again
            raise parts.Ended("failed", str(ended)) from None
        return self.about(shape, fit["layers"]) | {"placement": placement} | training.numbers_of(
            rows)

    def about(self, shape, layers):
        return {"layers": layers, "of": shape.layers, "parameters": shape.parameters(layers),
                "flops_per_token": shape.flops_per_token(layers)}

    def plain(self, name, mode, limit):
        """The same shape in PyTorch: as much of the step at once as it has memory for, and layers
        that run their forward again where it has not enough for any."""
        shape, tokens = shapes.SHAPES[name], TORCH_TOKENS[name]
        samples = tokens // shape.seq_len
        few = max(1, samples // 4)
        logits = 10 * few * shape.seq_len * shape.vocab
        layers = shapes.layers_by_count(shape, "torch", shapes.Batch(shape.seq_len, few), self.box,
                                        logits)
        if layers == 0:
            raise parts.Ended("unfit", "not one layer should fit")
        part = f"torch.{name}.{mode}"
        config = self.out / f"{part}.config.json"
        parts.store(config, shape.config(layers))
        words = ["train", str(config), "--seq-len", str(shape.seq_len)]
        if mode == "compile":
            words.append("--compile")
        deadline = parts.Deadline(limit)
        for at_once, again in ((samples, []), (few, []), (few, ["--recompute"])):
            batch = ["--micro-batch", str(at_once), "--micro-batches", str(samples // at_once)]
            try:
                result = self.torch(part, [*words, *batch, *again], deadline.left())
                break
            except parts.Ended as ended:
                if ended.status != "unfit" or again:
                    raise
        seconds, about = result.pop("seconds"), self.about(shape, layers)
        rate = tokens / seconds["median"]
        return about | result | {
            "step_seconds": seconds, "tokens_per_step": tokens, "tokens_per_s": rate,
            "tflops": rate * about["flops_per_token"] / 1e12,
            "micro_batch": at_once, "recompute": bool(again)}


def summary(found):
    found_table = table.of(found["parts"])
    return {"table": found_table}, table.text(found, found_table)


def command():
    options = arguments()
    options.out = options.out.resolve()
    for folder in (options.out, options.nvme or options.out):
        folder.mkdir(parents=True, exist_ok=True)
    box = boxes.box_of(options.nvme or options.out, options.card_gib)
    programs = boxes.Programs(options.programs)
    every = parts.Parts(options.out, list(Bench(options, box, programs).parts()))
    return boxes.work(options, "bench", box, programs, every, summary)


if __name__ == "__main__":
    boxes.main(command)
