#!/usr/bin/env python3
"""Trains on packed and masked documents with sluice, and on the same documents one by one, without
packing and padding, with transformers.

usage: documents.py SLUICE_BINARY [NAME...]

Losses must agree within 1e-5 at every step, gradient norms within 2e-4 of themselves; and of one step
each element of each gradient within 1e-5, each tensor within 2e-4 of its norm. What was packed into
which step is asked of `sluice data samples`, and held against the documents. Skipped (exit code 77)
where transformers is not installed.
"""
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import families
import numpy as np
import torch
from safetensors.torch import load_file

SEQ, BATCH, ACCUMULATION, STEPS = 48, 2, 3, 8
LR = 1000.0

CASES = {
    "llama": families.CASES["llama, tied, 8 heads to 1"],
    "llama, yarn": families.CASES["llama, yarn"],
    # Documents on both sides of the model's positions, in samples that reach far beyond them.
    "llama, dynamic": dataclasses.replace(
        families.CASES["llama, dynamic, beyond its positions"],
        config=dict(families.rope("dynamic", factor=2.0), max_position_embeddings=12)),
    "mistral, a window": families.CASES["mistral, a window"],
    "qwen3, tied": families.CASES["qwen3, tied, of three files"],
    "gpt2": families.CASES["gpt2, odd"],
}


def make_documents():
    """Each a list of ids and which of them count; some longer than a sample, some of one token."""
    rng = np.random.default_rng(11)
    lengths = [*rng.integers(2, 2 * SEQ // 3, 420), SEQ, SEQ + 1, 3 * SEQ + 5, 1]
    made = []
    for length in rng.permutation(lengths):
        ids = rng.integers(0, families.VOCAB, length)
        prompt = rng.integers(0, length + 1) if rng.random() < 0.7 else 0
        made.append((ids.tolist(), [int(i >= prompt) for i in range(length)]))
    return made


def write_token_set(prefix, documents):
    ids = np.concatenate([ids for ids, _ in documents]).astype("<u2")
    ends = np.cumsum([len(ids) for ids, _ in documents]).astype("<u8")
    ids.tofile(f"{prefix}.bin")
    ends.tofile(f"{prefix}.documents")
    np.concatenate([counts for _, counts in documents]).astype("u1").tofile(f"{prefix}.mask")
    pathlib.Path(f"{prefix}.json").write_text(json.dumps({
        "sluice_tokens": 1, "dtype": "uint16", "tokens": len(ids), "documents": len(documents),
        "targets": sum(sum(counts[1:]) for _, counts in documents), "masked": True,
        "vocab": families.VOCAB}))


def settings(folder, name, **changes):
    made = {
        "version": 1, "name": name, "output_dir": str(folder / "${name}"),
        "model": {"path": str(folder / "model")},
        "data": {"train": str(folder / "chat.bin"), "seq_len": SEQ, "shuffle": False},
        "train": {"steps": STEPS, "train_micro_batch_size_per_gpu": BATCH,
                  "gradient_accumulation_steps": ACCUMULATION},
        "optimizer": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0},
        "scheduler": {"type": "constant", "warmup_steps": 0},
        "precision": {"compute": "fp32"},
        "tiers": {"gpu": {"limit": "256MiB"}, "cpu": {"limit": "256MiB"}},
        "checkpoint": {"final_dtype": "fp32"},
    }
    for key, value in changes.items():
        made[key] = {**made[key], **value}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(made))
    return path


def sluice(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"sluice ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def run(binary, folder, name, **changes):
    sluice(binary, "train", settings(folder, name, **changes))
    lines = (folder / name / "metrics.jsonl").read_text().splitlines()
    return [(record["loss"], record["gnorm"]) for record in map(json.loads, lines)]


def packed_steps(binary, run_file):
    """The documents of each step, as sluice says."""
    per_step = BATCH * ACCUMULATION
    lines = sluice(binary, "data", "samples", run_file, "--samples", per_step * STEPS)
    samples = [json.loads(line) for line in lines.splitlines()[1:]]
    return [[document for sample in samples[i:i + per_step] for document in sample["documents"]]
            for i in range(0, per_step * STEPS, per_step)]


def expected_pieces(documents):
    """What a document becomes: pieces of SEQ places, each beginning with the last token before."""
    for ids, counts in documents:
        for begin in range(0, max(len(ids) - 1, 0), SEQ):
            marks = [0, *counts[begin + 1:begin + SEQ + 1]]
            if any(marks):
                yield ids[begin:begin + SEQ + 1], marks


def wrong_pieces(binary, run_file, documents):
    lines = sluice(binary, "data", "samples", run_file, "--samples", 10 ** 6).splitlines()[1:]
    found = sorted((piece["tokens"], piece["counts"])
                   for line in lines for piece in json.loads(line)["documents"])
    if found != sorted(expected_pieces(documents)):
        yield "the samples do not hold the documents"


def forget_lengths(model):
    """transformers keeps the frequencies of the longest document so far where they are dynamic."""
    for module in model.modules():
        if hasattr(module, "original_inv_freq"):
            module.register_buffer("inv_freq", module.original_inv_freq.clone(), persistent=False)
            module.max_seq_len_cached = module.original_max_seq_len


def backward(model, step):
    """The loss of one step, each document by itself."""
    targets = sum(sum(document["counts"]) for document in step)
    total = 0.0
    for document in step:
        forget_lengths(model)
        ids = torch.tensor(document["tokens"])
        labels = torch.where(torch.tensor(document["counts"]) > 0, ids, -100)
        logits = model(input_ids=ids[None, :-1]).logits[0]
        loss = torch.nn.functional.cross_entropy(logits, labels[1:], reduction="sum") / targets
        loss.backward()
        total += loss.item()
    return total


def train(folder, steps):
    model = families.loaded(folder)
    model.train()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                             weight_decay=0.0)
    seen = []
    for step in steps:
        loss = backward(model, step)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        adam.step()
        adam.zero_grad()
        seen.append((loss, norm))
    return seen


def wrong_gradients(binary, folder, step):
    """Adam's first step with eps 1 moves a weight by lr g / (|g| + 1): so g can be read from it."""
    run(binary, folder, "moved", train={"steps": 1, "gradient_clipping": None},
        optimizer={"lr": LR, "eps": 1.0})
    before = {name: weight.detach().clone()
              for name, weight in families.loaded(folder / "model").named_parameters()}
    after = load_file(folder / "moved" / "final" / "model.safetensors")
    model = families.loaded(folder / "model")
    model.train()
    backward(model, step)
    for name, weight in model.named_parameters():
        moved = (before[name] - after[name]).double() / LR
        found = moved / (1 - moved.abs())
        error = found - weight.grad.double()
        if not error.abs().max() <= 1e-5:
            yield f"gradient of {name}: off by {error.abs().max():.1e}"
        if not error.norm() <= families.NORM_BOUND * weight.grad.norm() + 1e-8:
            yield f"gradient of {name}: off by {error.norm() / weight.grad.norm():.1e} of its norm"


def compare(binary, name, case):
    documents = make_documents()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        families.make_folder(case, folder / "model")
        write_token_set(folder / "chat", documents)
        run_file = settings(folder, "trained")
        steps = packed_steps(binary, run_file)
        theirs = train(folder / "model", steps)
        ours = run(binary, folder, "trained")
        wrong = [*families.wrong_steps(ours, theirs),
                 *wrong_pieces(binary, run_file, documents),
                 *wrong_gradients(binary, folder, steps[0])]
        loss = max(abs(a[0] - b[0]) for a, b in zip(ours, theirs))
        norm = max(abs(a[1] / b[1] - 1) for a, b in zip(ours, theirs))
    print(f"{name}: losses within {loss:.1e} of {theirs[-1][0]:.3f}, norms within {norm:.1e}")
    for line in wrong:
        print(f"  {line}")
    return not wrong


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    torch.set_num_threads(2)
    families.transformers.logging.set_verbosity_error()
    families.transformers.logging.disable_progress_bar()
    chosen = sys.argv[2:] or list(CASES)
    good = [compare(sys.argv[1], name, CASES[name]) for name in chosen]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
