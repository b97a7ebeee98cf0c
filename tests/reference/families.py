#!/usr/bin/env python3
"""Trains small models of transformers with sluice and with transformers, and compares the two.

usage: families.py SLUICE_BINARY [NAME...]

Each model is made and saved by transformers, in sizes of its own, and trained by both from the saved
folder on the same tokens: every loss and every gradient norm must agree, by the bounds that
tests/fixtures/hf/README.md derives. Then sluice's final/ is loaded by transformers: after steps that
change nothing its logits are those of the folder, bit for bit. Skipped (exit code 77) where
transformers is not installed.
"""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing

os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run beside this one
os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install.sh transformers installs it")
    sys.exit(77)

VOCAB, SEQ, BATCH, ACCUMULATION, STEPS = 307, 64, 2, 2, 10
BOUND, NORM_BOUND = 1e-5, 2e-4


@dataclasses.dataclass
class Case:
    kind: str
    config: dict
    dtype: str = "float32"
    shard: typing.Optional[str] = None  # most of one file


SIZES = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=1,
             head_dim=10, intermediate_size=101, max_position_embeddings=256,
             initializer_range=0.1, vocab_size=VOCAB)


def rope(kind, **values):
    return dict(SIZES, rope_parameters=dict(rope_type=kind, rope_theta=1000.0, **values))


CASES = {
    "llama, tied, 8 heads to 1": Case("llama", dict(SIZES, tie_word_embeddings=True)),
    "llama, every bias": Case("llama", dict(SIZES, attention_bias=True, mlp_bias=True)),
    "llama, linear": Case("llama", rope("linear", factor=4.0)),
    "llama, dynamic, beyond its positions": Case(
        "llama", dict(rope("dynamic", factor=2.0), max_position_embeddings=24)),
    "llama, llama3": Case("llama", rope("llama3", factor=8.0, low_freq_factor=1.0,
                                        high_freq_factor=4.0,
                                        original_max_position_embeddings=32)),
    "llama, yarn": Case("llama", dict(
        rope("yarn", factor=4.0, original_max_position_embeddings=512), head_dim=32,
        max_position_embeddings=2048)),
    "qwen3, yarn of its own": Case(
        "qwen3", rope("yarn", factor=8.0, original_max_position_embeddings=128, beta_fast=4.0,
                      beta_slow=1.0, mscale=1.5, mscale_all_dim=0.5, truncate=False)),
    "mistral, a window": Case("mistral", dict(SIZES, sliding_window=23)),
    "qwen2, a window, tied": Case(
        "qwen2", dict(SIZES, sliding_window=17, use_sliding_window=True, max_window_layers=0,
                      tie_word_embeddings=True)),
    "qwen3, tied, of three files": Case("qwen3", dict(SIZES, tie_word_embeddings=True),
                                        shard="120KB"),
    "gpt2, odd": Case("gpt2", dict(n_embd=45, n_layer=3, n_head=5, n_inner=97, n_positions=80,
                                   vocab_size=VOCAB, initializer_range=0.1, resid_pdrop=0.0,
                                   embd_pdrop=0.0, attn_pdrop=0.0)),
    "llama, bf16": Case("llama", SIZES, dtype="bfloat16"),
    "gpt2, fp16": Case("gpt2", dict(n_embd=40, n_layer=2, n_head=4, n_positions=64,
                                    vocab_size=VOCAB, resid_pdrop=0.0, embd_pdrop=0.0,
                                    attn_pdrop=0.0), dtype="float16"),
}


def make_folder(case, folder):
    """A model with no weight at 0 or 1, so that one that is not read shows."""
    config = transformers.AutoConfig.for_model(case.kind, bos_token_id=0, eos_token_id=0,
                                               **case.config)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
    shard = {"max_shard_size": case.shard} if case.shard else {}
    model.to(getattr(torch, case.dtype)).save_pretrained(folder, **shard)


def make_tokens(path):
    rng = np.random.default_rng(3)
    row = np.zeros(SEQ * BATCH * ACCUMULATION * STEPS + 1, dtype=np.uint16)
    for i in range(1, len(row)):
        row[i] = (int(row[i - 1]) * 7 + 3 if rng.random() < 0.7 else rng.integers(VOCAB)) % VOCAB
    row.tofile(path)
    return torch.from_numpy(row.astype(np.int64))


def loaded(folder, dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def train(folder, row):
    """Loss and gradient norm of each step."""
    model = loaded(folder)
    model.train()
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    adam = torch.optim.AdamW([dict(params=decayed, weight_decay=0.1),
                              dict(params=others, weight_decay=0.0)],
                             lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    batches = [row[k * SEQ:(k + 1) * SEQ + 1] for k in range((len(row) - 1) // SEQ)]
    steps = []
    for step in range(STEPS):
        losses = []
        for part in range(ACCUMULATION):
            first = (step * ACCUMULATION + part) * BATCH
            both = torch.stack(batches[first:first + BATCH])
            logits = model(input_ids=both[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), both[:, 1:].flatten())
            (loss / ACCUMULATION).backward()
            losses.append(loss.item())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        adam.step()
        adam.zero_grad()
        steps.append((sum(losses) / ACCUMULATION, norm))
    return steps


def write_run_file(folder, name, model, **changes):
    settings = {
        "version": 1, "name": name, "output_dir": str(folder / "${name}"),
        "model": {"path": str(model)},
        "data": {"train": str(folder / "tokens.bin"), "seq_len": SEQ, "shuffle": False},
        "train": {"steps": STEPS, "train_micro_batch_size_per_gpu": BATCH,
                  "gradient_accumulation_steps": ACCUMULATION},
        "optimizer": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "scheduler": {"type": "constant", "warmup_steps": 0},
        "precision": {"compute": "fp32"},
        "zero_optimization": {"offload_param": {"device": "cpu"},
                              "offload_optimizer": {"device": "cpu"}, "sub_group_size": "64KiB"},
        "tiers": {"gpu": {"limit": "256MiB"}, "cpu": {"limit": "256MiB"}},
        "checkpoint": {"final_dtype": "fp32"},
    }
    for key, value in changes.items():
        settings[key] = {**settings[key], **value}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(settings))
    return path


def sluice(program, *arguments):
    """What sluice, or one of its tools, prints."""
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"sluice ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def run_sluice(binary, folder, name, model, **changes):
    sluice(binary, "train", write_run_file(folder, name, model, **changes))
    lines = (folder / name / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [(r["loss"], r["gnorm"]) for r in records if "loss" in r]


def wrong_steps(ours, theirs):
    if len(ours) != len(theirs):
        yield f"{len(ours)} steps of {len(theirs)}"
    for step, ((loss, norm), (their_loss, their_norm)) in enumerate(zip(ours, theirs)):
        if not abs(loss - their_loss) <= BOUND:
            yield f"step {step}: loss {loss}, transformers {their_loss}"
        if not abs(norm - their_norm) <= NORM_BOUND * their_norm:
            yield f"step {step}: gradient norm {norm}, transformers {their_norm}"


def wrong_logits(binary, case, folder, row):
    """Loaded, saved again and loaded by transformers it is the model that it was."""
    if case.dtype == "float16":
        return  # final/ is fp32 or bf16
    kept = {"float32": "fp32", "bfloat16": "bf16"}[case.dtype]
    run_sluice(binary, folder, "kept", folder / "model", train={"steps": 1},
               optimizer={"lr": 0.0, "weight_decay": 0.0},
               checkpoint={"final_dtype": kept, "shard_size": "1MiB"})
    dtype = getattr(torch, case.dtype)
    tokens = row[None, :SEQ]
    with torch.no_grad():
        before, after = (loaded(path, dtype)(input_ids=tokens).logits
                         for path in (folder / "model", folder / "kept" / "final"))
    if not torch.equal(before, after):
        yield f"logits of final/ are off by up to {(before - after).abs().max()}"
    configs = [json.loads((path / "config.json").read_text())
               for path in (folder / "model", folder / "kept" / "final")]
    for config in configs:
        config.pop("torch_dtype", None)
    if configs[0] != configs[1]:
        yield f"config.json changed from {configs[0]} to {configs[1]}"
    for name in ("generation_config.json",):
        if (folder / "model" / name).read_bytes() != (folder / "kept/final" / name).read_bytes():
            yield f"{name} changed"


def compare(binary, name, case):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make_folder(case, folder / "model")
        row = make_tokens(folder / "tokens.bin")
        theirs = train(folder / "model", row)
        ours = run_sluice(binary, folder, "trained", folder / "model")
        wrong = [*wrong_steps(ours, theirs), *wrong_logits(binary, case, folder, row)]
    return report(name, ours, theirs, wrong)


def report(name, ours, theirs, wrong):
    loss = max(abs(a[0] - b[0]) for a, b in zip(ours, theirs))
    norm = max(abs(a[1] / b[1] - 1) for a, b in zip(ours, theirs))
    print(f"{name}: losses within {loss:.1e} of {theirs[-1][0]:.3f}, norms within {norm:.1e}")
    for line in wrong:
        print(f"  {line}")
    return not wrong


def hush():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def main(usage, cases, compare_one):
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(usage)
    torch.set_num_threads(2)
    hush()
    chosen = sys.argv[2:] or list(cases)
    good = [compare_one(sys.argv[1], name, cases[name]) for name in chosen]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main(__doc__, CASES, compare)
