#!/usr/bin/env python3
"""Trains small models with sluice and in plain PyTorch, and compares everything that a run reports.

usage: reference.py SLUICE_BINARY

Both sides are given the same run file and the same files of tokens, and nothing of each other:
first weights (initial.py), order of samples (batches.py), model (models.py), learning rate,
clipping and optimizer (training.py) are made again here from their documentation. Where a case
changes the first weights, sluice reads them from a file. Per step loss, gradient norm, clip factor
and learning rate must agree, the validation loss where it was evaluated, and every tensor at the
end. Skipped (exit code 77) where the system's Python has no PyTorch.
"""
import dataclasses
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

# What narrows LibTorch down is for sluice alone: PyTorch's side stays what it is.
ENVIRONMENT = dict(os.environ)
for variable in ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"):
    os.environ.pop(variable, None)

os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run beside this one
try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install.sh reference installs it")
    sys.exit(77)

from batches import Order, Samples, learnable_row
from cases import CASES, EVERY, INITIAL, NONE, RARE, SEQ, SOME, VOCAB, run_file
from initial import check_philox, initial_weights
from training import train


def run_sluice(binary, case, folder, name):
    """The lines of metrics.jsonl, and the final weights."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(run_file(case, folder, name)))  # JSON is YAML
    done = subprocess.run([binary, "train", str(path)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, env=ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(f"sluice ended with {done.returncode}:\n{done.stdout.decode()}")
    metrics = folder / name / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return lines, read_safetensors(folder / name / "final" / "model.safetensors")


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    weights = {}
    for name, info in header.items():
        assert info["dtype"] == "F32", name
        begin, end = (8 + length + offset for offset in info["data_offsets"])
        weights[name] = np.frombuffer(raw[begin:end], dtype="<f4").reshape(info["shape"])
    return weights


def write_model(folder, config, weights):
    """As save_pretrained writes one: config.json and model.safetensors."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, values in weights.items():
        header[name] = dict(dtype="F32", shape=values.shape,
                            data_offsets=[end, end + values.nbytes])
        end += values.nbytes
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(map(np.ndarray.tobytes, weights.values())))


def make_data(folder, case):
    """Two files to train on, which are one row, and one to evaluate on, which has another rule."""
    order = Order(case.samples, case.seed, case.shuffle)
    order.check()
    rng = np.random.default_rng(5)
    row = learnable_row(SEQ * case.samples + 20, VOCAB, 7, rng)
    if case.overflow is not None:
        row[SEQ * order.at(case.overflow * case.accumulation * case.batch)] = RARE
    row[:1000].tofile(folder / "train-a.bin")
    row[1000:].tofile(folder / "train-b.bin")
    other = learnable_row(SEQ * 12 + 1, VOCAB, 11, rng)
    other.tofile(folder / "valid.bin")
    samples = Samples(row, SEQ)
    assert samples.count == case.samples
    return samples, order, Samples(other, SEQ)


# [Note: Bounds] Both sides round in the same places. But sums are taken in another order, so a
# result comes out one spacing apart here and there, and what follows from it everywhere: after a
# layer the roundings of the two sides are independent. Rounding to nearest with unit roundoff u
# errs by 0.41 u (root mean square over all significands), so K roundings in a row on each side
# leave sqrt(2 K) 0.41 u between them. From the tokens to a logit K is 13 for each layer (norm,
# projection, rotation, weights of the values, context, output, sum; norm, up, activation, product,
# down, sum) and 3 around them, and as many again on the way back. In fp32 each stands for a sum of
# some 100 terms, whose own roundings are 10 times one; in bf16 and fp16 sums are fp32.
#
# gnorm    three standard deviations of a gradient's error e: 9.5e-6 in fp32 (measured 3e-6), 6e-2
#          in bf16 (3e-2)
# weights  Adam takes a step of one size however small a gradient is, so elements whose gradient is
#          below the error step at random: 1.6 e of them, when gradients are spread normally.
#          The distance of a tensor, as a share of the way it has come, is at most sqrt(1.6 e):
#          2.2e-3 in fp32 (measured 4e-5: moments average over steps), 0.18 in bf16 (2.9e-2)
# loss     in bf16 three standard deviations of a logit's error, 2 being the size of the logits, as
#          a mean over the N tokens of a step: 5e-3 to 7e-3 (measured 2.3e-3). In fp32 the loss
#          itself is summed and rounded: numbers lie up to 1.2e-7 of themselves apart, and 1e-6 is
#          eight such spacings (measured 2e-7, in 20 steps and in 100: what the weights are apart by
#          then shows no more than such roundings do; see By segment in cases.py)
# fp16 is eight times as fine as bf16, and so are its bounds
UNIT_ROUNDOFF = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}


@dataclasses.dataclass
class Bounds:
    loss: float     # nats; in fp32 relative
    gnorm: float    # relative
    weights: float  # distance of a tensor, as a share of the way it has come


def bounds(case):
    roundings = 13 * case.layers + 3
    one = 0.41 * UNIT_ROUNDOFF[case.compute] * (10 if case.compute == "fp32" else 1)
    logit = math.sqrt(2 * roundings) * one
    gradient = math.sqrt(2 * 2 * roundings) * one
    tokens = case.batch * SEQ * min(case.accumulation, case.evaluation_batches)
    loss = 1e-6 if case.compute == "fp32" else 3 * 2 * logit / math.sqrt(tokens)
    return Bounds(loss=loss, gnorm=3 * gradient, weights=math.sqrt(1.6 * gradient))


class Comparison:
    """What differs, and by how much at most."""

    def __init__(self):
        self.failures, self.worst = [], {}

    def check(self, what, where, difference, most):
        if difference > self.worst.get(what, -1.0):
            self.worst[what] = difference
        if not difference <= most:
            self.failures.append(f"{what}, {where}: {difference:.2e} apart, at most {most:.0e}")

    def equal(self, what, ours, theirs):
        if ours != theirs:
            self.failures.append(f"{what}: sluice {ours}, PyTorch {theirs}")


def report(name, result, numbers):
    print(f"{name}: {'FAILED' if result.failures else 'ok'}; {numbers}", flush=True)
    for failure in result.failures[:12]:
        print(f"  {failure}")
    return not result.failures


def relative(a, b):
    return abs(a - b) / max(abs(b), 1e-30)


def loss_apart(case, a, b):
    return relative(a, b) if case.compute == "fp32" else abs(a - b)


def steps_clipped(lines):
    """Which steps were, of each that is clipped by its own norm."""
    applied = [line["factors"].values() for line in lines if not line["skipped"]]
    counts = [sum(factor < 1.0 for factor in of_one) for of_one in zip(*applied)]
    return set().union(*({0: NONE, len(applied): EVERY}.get(count, SOME) for count in counts))


def compare_steps(result, case, ours, theirs):
    most = bounds(case)
    result.equal("steps", [line["step"] for line in ours], [line["step"] for line in theirs])
    result.equal("clipped", case.clipped, steps_clipped(theirs))
    if case.compute != "fp16":  # which skips as it looks for its loss scale
        skipped = [line["step"] - 1 for line in theirs if line["skipped"]]
        result.equal("skipped", [] if case.overflow is None else [case.overflow], skipped)
    for a, b in zip(ours, theirs):
        where = f"step {b['step']}"
        result.check("loss", where, loss_apart(case, a["loss"], b["loss"]), most.loss)
        result.equal(f"skipped, {where}", a["skipped"], b["skipped"])
        result.equal(f"delayed, {where}", a.get("delayed", False), b["delayed"])
        result.equal(f"loss scale, {where}", a.get("loss_scale"), b.get("loss_scale"))
        result.equal(f"clipped by segment, {where}", "largest_gnorm" in a, "largest_gnorm" in b)
        if not (a["skipped"] or b["skipped"]):  # whose norms are no numbers, and factors unused
            result.check("gnorm", where, relative(a["gnorm"], b["gnorm"]), most.gnorm)
            norm = a["gnorm"]
            if "largest_gnorm" in a and "largest_gnorm" in b:
                norm = a["largest_gnorm"]
                result.check("largest gnorm", where, relative(norm, b["largest_gnorm"]), most.gnorm)
            # From its own norm: this is arithmetic in double, and tells the 1e-6 beside the norm.
            clip = 1.0 if case.clipping is None else min(1.0, case.clipping / (norm + 1e-6))
            result.check("clip", where, relative(a["clip"], clip), 1e-12)
        result.check("lr", where, relative(a["lr"], b["lr"]), 1e-12)
        result.equal(f"tokens, {where}", a["tokens"], b["tokens"])
        result.equal(f"evaluated, {where}", "valid_loss" in a, "valid_loss" in b)
        if "valid_loss" in a and "valid_loss" in b:
            result.check("valid", where, loss_apart(case, a["valid_loss"], b["valid_loss"]),
                         most.loss)


def trained(name, values):
    """What training decides: softmax does not see the bias of the keys, whose gradient is only
    rounding."""
    return values.reshape(3, -1)[[0, 2]] if name.endswith("c_attn.bias") else values


def compare_weights(result, case, initial, ours, theirs):
    result.equal("tensors", sorted(ours), sorted(theirs))
    for name in sorted(set(ours) & set(theirs)):
        begin, a, b = (trained(name, values[name]) for values in (initial, ours, theirs))
        share = np.linalg.norm(a - b) / np.linalg.norm(b - begin)
        result.check("weights", name, float(share), bounds(case).weights)


def compare(binary, name, case):
    result = Comparison()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        samples, order, validation = make_data(folder, case)
        initial = initial_weights(case.model, case.seed)
        if case.overflow is not None:
            initial["model.embed_tokens.weight"][RARE] = 0
            write_model(folder / "model", case.model, initial)
        ours, our_weights = run_sluice(binary, case, folder, "run")
    theirs, their_weights = train(case, initial, samples, order, validation)
    compare_steps(result, case, ours, theirs)
    compare_weights(result, case, initial, our_weights, their_weights)
    worst = ", ".join(f"{what} {value:.1e}" for what, value in result.worst.items())
    return report(name, result, f"loss {theirs[0]['loss']:.4f} -> {theirs[-1]['loss']:.4f}; "
                                f"largest differences: {worst}")


def different_bits(a, b):
    return np.count_nonzero(a.view(np.uint32) != b.view(np.uint32))


def compare_initial(binary, name, case):
    """Bit for bit: the values are integers and one product, so no machine shows in them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_data(folder, case)
        _, ours = run_sluice(binary, case, folder, "run")
    theirs = initial_weights(case.model, case.seed)
    result = Comparison()
    result.equal("tensors", sorted(ours), sorted(theirs))
    for tensor in sorted(set(ours) & set(theirs)):
        result.equal(f"shape of {tensor}", ours[tensor].shape, theirs[tensor].shape)
        result.check("bits", tensor, different_bits(ours[tensor], theirs[tensor]), 0)
    return report(name, result, f"{len(theirs)} tensors")


def main():
    torch.set_num_threads(1)  # more of them only spin, on models of this size
    check_philox()
    results = [compare_initial(sys.argv[1], name, case) for name, case in INITIAL.items()]
    results += [compare(sys.argv[1], name, case) for name, case in CASES.items()]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
