#!/usr/bin/env python3
"""Trains the same small GPT and Llama as sluice, in plain PyTorch, and compares the losses.

usage: reference.py SLUICE_BINARY

Each model is trained twice from the same initial weights (sluice writes them: train.steps=0): by
sluice, with parameters and optimizer state moved between tiers, and here, by autograd with everything
in one place. In fp32 the losses must agree within 1e-5 at each of 20 steps.
"""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install.sh reference installs it")
    sys.exit(77)

STEPS, BATCH, ACCUMULATION, SEQ = 20, 3, 2, 48
LR, BETAS, EPS, DECAY, CLIP = 3e-3, (0.9, 0.95), 1e-8, 0.1, 0.5
WARMUP, MIN_RATIO = 4, 0.1
TOLERANCE = 1e-5

MODELS = {
    "gpt2": dict(model_type="gpt2", vocab_size=307, n_embd=60, n_layer=3, n_head=4, n_inner=200,
                 n_positions=64),
    "llama": dict(model_type="llama", vocab_size=307, hidden_size=60, num_hidden_layers=3,
                  num_attention_heads=6, num_key_value_heads=2, intermediate_size=136,
                  max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0),
}


def run_sluice(binary, folder, name, config, steps):
    run = dict(
        version=1, name=name, output_dir=str(folder / "${name}"), seed=11,
        model=dict(config=config),
        data=dict(train=[str(folder / "tokens.bin")], seq_len=SEQ, shuffle=False),
        train=dict(steps=steps, train_micro_batch_size_per_gpu=BATCH,
                   gradient_accumulation_steps=ACCUMULATION, gradient_clipping=CLIP),
        precision=dict(compute="fp32"),
        optimizer=dict(type="adamw", lr=LR, betas=list(BETAS), eps=EPS, weight_decay=DECAY),
        scheduler=dict(type="cosine", warmup_steps=WARMUP, min_lr_ratio=MIN_RATIO),
        zero_optimization=dict(offload_param=dict(device="cpu"),
                               offload_optimizer=dict(device="nvme"), sub_group_size="96KiB"),
        tiers=dict(gpu=dict(unified=False), nvme=dict(allow_ram_path=True)),
        checkpoint=dict(final_dtype="fp32"))
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(run))  # JSON is YAML
    subprocess.run([binary, "train", str(path)], check=True, stdout=subprocess.DEVNULL)
    return folder / name


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    weights = {}
    for name, info in header.items():
        assert info["dtype"] == "F32", name
        begin, end = (8 + length + offset for offset in info["data_offsets"])
        values = np.frombuffer(raw[begin:end], dtype="<f4").reshape(info["shape"])
        weights[name] = torch.nn.Parameter(torch.from_numpy(values.copy()))
    return weights


def attention(q, k, v):
    """Causal; q, k, v: [batch, heads, tokens, head_dim]."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, -math.inf), dim=-1) @ v


def heads(x, count):
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def gpt2(w, c, tokens):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        q, k, v = conv1d(norm(x, p + "ln_1"), p + "attn.c_attn").split(c["n_embd"], dim=-1)
        mixed = attention(*(heads(t, c["n_head"]) for t in (q, k, v)))
        x = x + conv1d(mixed.transpose(1, 2).reshape(x.shape), p + "attn.c_proj")
        up = conv1d(norm(x, p + "ln_2"), p + "mlp.c_fc")
        gelu = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)))
        x = x + conv1d(gelu, p + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def rotate(x, theta):
    """x: [batch, heads, tokens, head_dim]; the two halves of head_dim are the pairs."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def llama(w, c, tokens):
    def norm(x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"])
        return x * scale * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T

    group = c["num_attention_heads"] // c["num_key_value_heads"]
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y = norm(x, p + "input_layernorm")
        q = heads(linear(y, p + "self_attn.q_proj"), c["num_attention_heads"])
        k = heads(linear(y, p + "self_attn.k_proj"), c["num_key_value_heads"])
        v = heads(linear(y, p + "self_attn.v_proj"), c["num_key_value_heads"])
        q, k = rotate(q, c["rope_theta"]), rotate(k, c["rope_theta"])
        mixed = attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        x = x + linear(mixed.transpose(1, 2).reshape(x.shape), p + "self_attn.o_proj")
        y = norm(x, p + "post_attention_layernorm")
        gate, up = linear(y, p + "mlp.gate_proj"), linear(y, p + "mlp.up_proj")
        x = x + linear(F.silu(gate) * up, p + "mlp.down_proj")
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def learning_rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return LR * (MIN_RATIO + (1 - MIN_RATIO) * 0.5 * (1 + math.cos(math.pi * done)))


def train(weights, model, config, row):
    """The losses of STEPS steps; sample k is the SEQ + 1 tokens from k * SEQ on."""
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in weights.values() if p.dim() >= 2], weight_decay=DECAY),
         dict(params=[p for p in weights.values() if p.dim() < 2], weight_decay=0.0)],
        lr=LR, betas=BETAS, eps=EPS)
    samples, losses = (len(row) - 1) // SEQ, []
    for step in range(STEPS):
        total = 0.0
        for micro_batch in range(ACCUMULATION):
            first = (step * ACCUMULATION + micro_batch) * BATCH
            rows = [row[k % samples * SEQ:][:SEQ + 1] for k in range(first, first + BATCH)]
            tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
            logits = model(weights, config, tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / ACCUMULATION
            loss.backward()
            total += loss.item()
        losses.append(total)
        norm = math.sqrt(sum(p.grad.double().pow(2).sum().item() for p in weights.values()))
        for p in weights.values():
            p.grad *= min(1.0, CLIP / (norm + 1e-6))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def compare(binary, name, model):
    config = MODELS[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        # A learnable row: each token is mostly decided by the one before it.
        rng = np.random.default_rng(5)
        row = np.zeros(SEQ * 100 + 1, dtype=np.uint16)
        for i in range(1, len(row)):
            guess = int(row[i - 1]) * 7 + 3
            row[i] = (guess if rng.random() < 0.7 else rng.integers(307)) % 307
        row.tofile(folder / "tokens.bin")

        initial = run_sluice(binary, folder, "initial", config, 0)
        weights = read_safetensors(initial / "final" / "model.safetensors")
        trained = run_sluice(binary, folder, "trained", config, STEPS)
        lines = (trained / "metrics.jsonl").read_text().splitlines()
        ours = [json.loads(line)["loss"] for line in lines]
    theirs = train(weights, model, config, row)
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    passed = len(ours) == STEPS and worst <= TOLERANCE and theirs[-1] < theirs[0] - 0.1
    print(f"{name}: loss {theirs[0]:.4f} -> {theirs[-1]:.4f}, largest difference {worst:.1e} "
          f"over {len(ours)} steps: {'ok' if passed else 'FAILED'}")
    return passed


def main():
    torch.set_num_threads(2)
    results = [compare(sys.argv[1], "gpt2", gpt2), compare(sys.argv[1], "llama", llama)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
