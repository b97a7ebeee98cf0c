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


def settings(folder, train=None, optimizer=None):
    """What a run file has unlike that of families.py."""
    return {"data": {"train": str(folder / "chat.bin"), "seq_len": SEQ},
            "train": {"steps": STEPS, "train_micro_batch_size_per_gpu": BATCH,
                      "gradient_accumulation_steps": ACCUMULATION, **(train or {})},
            "optimizer": {"weight_decay": 0.0, **(optimizer or {})}}


def packed_steps(binary, run_file):
    """The documents of each step, as sluice says."""
    per_step = BATCH * ACCUMULATION
    lines = families.sluice(binary, "data", "samples", run_file, "--samples", per_step * STEPS)
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
    printed = families.sluice(binary, "data", "samples", run_file, "--samples", 10 ** 6)
    lines = printed.splitlines()[1:]
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
    families.run_sluice(binary, folder, "moved", folder / "model",
                        **settings(folder, train={"steps": 1, "gradient_clipping": None},
                                   optimizer={"lr": LR, "eps": 1.0}))
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
        run_file = families.write_run_file(folder, "trained", folder / "model", **settings(folder))
        steps = packed_steps(binary, run_file)
        theirs = train(folder / "model", steps)
        ours = families.run_sluice(binary, folder, "trained", folder / "model", **settings(folder))
        wrong = [*families.wrong_steps(ours, theirs),
                 *wrong_pieces(binary, run_file, documents),
                 *wrong_gradients(binary, folder, steps[0])]
    return families.report(name, ours, theirs, wrong)


if __name__ == "__main__":
    families.main(__doc__, CASES, compare)
