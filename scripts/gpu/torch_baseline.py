#!/usr/bin/env python3
"""What plain PyTorch does here, beside which sluice is measured. It needs PyTorch and nothing else.

  torch_baseline.py matmul             a bf16 product of two large square matrices
  torch_baseline.py copy               copies between pinned host memory and the card
  torch_baseline.py train CONFIG ...   steps of a Llama-like model: bf16 autocast, fused AdamW

Each prints one line of JSON. Exit code 3: out of memory.
"""
import argparse
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

UNFIT = 3


class Clock:
    """Seconds of what the device does: by its events on a GPU."""

    def __init__(self, device):
        self.cuda = device == "cuda"

    def now(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, marks):
        if not self.cuda:
            return [end - begin for begin, end in zip(marks, marks[1:])]
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in zip(marks, marks[1:])]


def timed(clock, work, rounds, warm_up=3):
    for _ in range(warm_up):
        work()
    marks = [clock.now()]
    for _ in range(rounds):
        work()
        marks.append(clock.now())
    return clock.between(marks)


def matmul(options):
    n = options.size or 8192
    a, b = (torch.randn(n, n, device=options.device).bfloat16() for _ in range(2))
    seconds = timed(Clock(options.device), lambda: torch.mm(a, b), options.steps)
    return {"work": "matmul", "size": n, "flops": 2 * n**3, "seconds": seconds}


def copy(options):
    """To the device, from it, and both at once, which counts the bytes of both."""
    size = options.size or 1 << 30
    cuda = options.device == "cuda"
    host = [torch.ones(size, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
    device = [torch.zeros(size, dtype=torch.uint8, device=options.device) for _ in range(2)]
    back = torch.cuda.Stream() if cuda else None

    def h2d():
        device[0].copy_(host[0], non_blocking=True)

    def d2h():
        host[1].copy_(device[1], non_blocking=True)

    def both():
        if not cuda:
            h2d()
            d2h()
            return
        back.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(back):
            d2h()
        h2d()
        torch.cuda.current_stream().wait_stream(back)

    clock = Clock(options.device)
    return {"work": "copy", "bytes": size,
            "h2d": timed(clock, h2d, options.steps), "d2h": timed(clock, d2h, options.steps),
            "both": timed(clock, both, options.steps)}


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + 1e-6)
        return (x32 * self.weight).to(x.dtype)


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        kv = hidden // self.heads * self.kv_heads
        self.attention_norm, self.mlp_norm = Norm(hidden), Norm(hidden)
        self.q, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(hidden, kv, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        normed = self.attention_norm(x)
        q, k, v = (linear(normed).unflatten(-1, (heads, -1)).transpose(1, 2)
                   for linear, heads in ((self.q, self.heads), (self.k, self.kv_heads),
                                         (self.v, self.kv_heads)))
        context = functional.scaled_dot_product_attention(
            rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.o(context.transpose(1, 2).flatten(2))
        normed = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    def __init__(self, config, recompute):
        super().__init__()
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        self.embed = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = Norm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if config["tie_word_embeddings"]:
            self.head.weight = self.embed.weight
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
        width = hidden // config["num_attention_heads"]
        rates = config["rope_theta"] ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(config["max_position_embeddings"]), rates)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())
        self.recompute = recompute

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        cos, sin = self.cos[: x.shape[1]], self.sin[: x.shape[1]]
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, cos, sin, use_reentrant=False)
            else:
                x = layer(x, cos, sin)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(options):
    torch.manual_seed(1)
    with open(options.config, encoding="utf-8") as file:
        config = json.load(file)
    with torch.device(options.device):
        model = Model(config, options.recompute)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if options.compile else model
    shape = (options.micro_batch, options.seq_len + 1)

    def step():
        for _ in range(options.micro_batches):
            tokens = torch.randint(config["vocab_size"], shape, device=options.device)
            with torch.autocast(options.device, dtype=torch.bfloat16):
                loss = forward(tokens[:, :-1], tokens[:, 1:])
            (loss / options.micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = timed(Clock(options.device), step, options.steps)
    parameters = sum(weight.numel() for weight in model.parameters())
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else None
    return {"work": "train", "parameters": parameters, "seconds": seconds, "peak_bytes": peak,
            "loss": step().item()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["matmul", "copy", "train"])
    parser.add_argument("config", nargs="?", help="a model as the keys of a config.json; of train")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", type=int, help="of matmul: rows; of copy: bytes")
    parser.add_argument("--steps", type=int, default=10, help="that are timed, after three more")
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--recompute", action="store_true", help="layers run their forward again")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    return parser.parse_args()


def main():
    options = arguments()
    try:
        result = {"matmul": matmul, "copy": copy, "train": train}[options.work](options)
    except RuntimeError as failure:
        if "out of memory" not in str(failure):  # compiled code wraps it in errors of its own
            raise
        print(f"error: {str(failure).splitlines()[0]}", file=sys.stderr)
        sys.exit(UNFIT)
    print(json.dumps(result | {"torch": torch.__version__}))


if __name__ == "__main__":
    main()
