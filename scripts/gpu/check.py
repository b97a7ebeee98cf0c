"""scripts/gpu_check.sh OUT - whether this build is right on this card."""
import functools
import json
import pathlib
import shutil

import box as boxes
import parts
import shapes
import training

# What says most of a GPU comes first; the crown test over placements right behind it.
FIRST = ["gpu_test", "tensor_test", "model_test", "memory_test", "crown_test"]
# Tests that take minutes, in as many parts: each is a start of its own.
SHARDS = {"crown_test": 6, "resume_test": 3, "plan_test": 4, "faults_test": 2}
# Where the state of the small run lives that compute-sanitizer watches.
SANITIZED = ["hbm", "dram"]
SANITIZER_FOUND = 86  # the exit code that it is told to end with
SMALL = shapes.Batch(seq_len=64, micro_batch=2, micro_batches=2)


class Check:
    def __init__(self, options, programs):
        self.out, self.programs, self.pretended = options.out, programs, options.card_gib
        self.logs = self.out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)

    def parts(self):
        rest = [name for name in self.programs.tests() if name not in FIRST]
        yield from self.tests([name for name in FIRST if self.programs.has(name)])
        yield from self.watched("memcheck")
        yield from self.tests(rest)
        yield from self.watched("racecheck")  # minutes

    def watched(self, tool):
        for placement in SANITIZED:
            name = f"sanitizer.{tool}.{placement}"
            yield parts.Part(name, functools.partial(self.sanitized, name, tool, placement), 120)

    def tests(self, programs):
        for program in programs:
            shards = SHARDS.get(program, 1)
            for shard in range(shards):
                name = program if shards == 1 else f"{program}.{shard + 1}-of-{shards}"
                run = functools.partial(self.test, name, program, shard, shards)
                yield parts.Part(name, run, 30)

    def ended(self, log, code):
        if code != 0:
            tail = parts.last_lines(log)
            last = f": {tail[-1][:120]}" if tail else ""
            raise parts.Ended("failed", f"exit code {code}{last}; {log}", code=code, log=str(log),
                              tail=tail)

    def test(self, name, program, shard, shards, limit):
        log, report = self.logs / f"{name}.log", self.logs / f"{name}.json"
        report.unlink(missing_ok=True)
        code = parts.run(self.programs.command(program), log, limit, cwd=self.logs, env={
            "GTEST_OUTPUT": f"json:{report}", "GTEST_TOTAL_SHARDS": str(shards),
            "GTEST_SHARD_INDEX": str(shard)})
        self.ended(log, code)
        return {"code": code, "log": str(log)} | counted(report)

    def sanitized(self, name, tool, placement, limit):
        """Steps of a small model; what the CUDA runtime answers is looked at by the program."""
        sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not pathlib.Path(sanitizer).exists():
            raise parts.Ended("skipped", "compute-sanitizer is not installed here")
        log, found = self.logs / f"{name}.log", self.logs / f"{name}.found"
        found.unlink(missing_ok=True)
        wrapped = [sanitizer, "--tool", tool, "--target-processes", "all", "--report-api-errors",
                   "no", "--error-exitcode", str(SANITIZER_FOUND), "--log-file", str(found),
                   *self.programs.command("sluice")]
        settings = ["train.steps=3", "tiers.gpu.limit=1GiB", "tiers.cpu.limit=2GiB"]
        settings.append("tiers.gpu.unified=false" if self.pretended else "tiers.gpu.device=cuda")
        runs = training.Runs(wrapped, self.out, self.out, settings)
        with runs.scratch() as scratch:
            shape = shapes.SHAPES["tiny"]
            command = runs.command(scratch, shape, shape.layers, placement, SMALL)
            code = parts.run(command, log, limit)
        said = found.read_text(encoding="utf-8", errors="replace") if found.exists() else ""
        if "Device not supported" in said + "\n".join(parts.last_lines(log)):
            raise parts.Ended("skipped", f"compute-sanitizer cannot work here; {found}")
        self.ended(found if code == SANITIZER_FOUND else log, code)
        summaries = [line for line in said.splitlines() if "SUMMARY" in line]
        if not summaries:
            raise parts.Ended("failed", f"compute-sanitizer has summed up nothing; {found}")
        return {"code": code, "log": str(log), "summary": summaries[-1].strip("= ")}


def counted(report):
    """How many tests of a program ran, and which it skipped."""
    if not report.exists():
        raise parts.Ended("failed", f"no {report}: did it run any test?")
    suites = json.loads(report.read_text(encoding="utf-8"))["testsuites"]
    tests = [test for suite in suites for test in suite["testsuite"]]
    ran = [test for test in tests if test["status"] == "RUN"]
    skipped = [f"{test['classname']}.{test['name']}" for test in ran if test["result"] == "SKIPPED"]
    if not ran:
        raise parts.Ended("failed", f"{report} has no test that ran")
    return {"tests": len(ran) - len(skipped), "tests_skipped": skipped}


def summary(found):
    lines = []
    done = [part for part in found["parts"] if part["status"] != "left"]
    for part in done:
        tests = f"{part.get('tests')} tests passed, {len(part.get('tests_skipped', []))} skipped"
        says = part.get("why") or part.get("summary") or tests
        lines.append(f"{part['status']:8} {part['took']:6.1f} s  {part['part']:26} {says}")
    tests = {"tests_passed": sum(part.get("tests", 0) for part in done),
             "tests_skipped": sum(len(part.get("tests_skipped", [])) for part in done)}
    lines.append(f"tests: {tests['tests_passed']} passed, {tests['tests_skipped']} skipped")
    return tests, "\n".join(lines) + "\n"


def command():
    options = boxes.parser_of("gpu_check.sh", __doc__.split(" - ")[1]).parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    box = boxes.box_of(options.out, options.card_gib)
    programs = boxes.Programs(options.programs)
    every = parts.Parts(options.out, list(Check(options, programs).parts()))
    return boxes.work(options, "check", box, programs, every, summary)


if __name__ == "__main__":
    boxes.main(command)
