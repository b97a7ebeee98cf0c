#!/usr/bin/env python3
"""What plain PyTorch does here, beside which sluice is measured. It needs PyTorch and nothing else.

  torch_baseline.py matmul             a bf16 product of two large square matrices
  torch_baseline.py copy               copies between pinned host memory and the card
  torch_baseline.py train CONFIG ...   steps of a Llama or a GPT-2: bf16 autocast, fused AdamW

Each prints one line of JSON. Exit code 3: out of memory.
"""
import argparse
import itertools
import json
import os
import sys
import time

import torch
from torch import nn

from torch_models import model_of

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


def optimizer_of(model):
    """Weight decay is for matrices, as sluice has it."""
    weights = list(model.parameters())
    groups = [{"params": [weight for weight in weights if weight.dim() > 1]},
              {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def batches(options, vocab):
    """Endless tokens of micro-batches, of each sample one more for the last target: those of a file of
    uint16, over and over, or random ones."""
    shape = options.micro_batch, options.seq_len + 1
    if not options.data:
        while True:
            yield torch.randint(vocab, shape, device=options.device)
    ids = torch.from_file(options.data, size=os.path.getsize(options.data) // 2,
                          dtype=torch.uint16).to(options.device, torch.long)
    whole = len(ids) // (shape[0] * shape[1])
    yield from itertools.cycle(ids[:whole * shape[0] * shape[1]].view(whole, *shape))


def train(options):
    torch.manual_seed(1)
    with open(options.config, encoding="utf-8") as file:
        config = json.load(file)
    with torch.device(options.device):
        model = model_of(config, options.recompute)
    optimizer = optimizer_of(model)
    forward = torch.compile(model) if options.compile else model
    tokens, losses = batches(options, config["vocab_size"]), []

    def step():
        losses.append(0)
        for _ in range(options.micro_batches):
            some = next(tokens)
            with torch.autocast(options.device, torch.bfloat16, options.compute == "bf16"):
                loss = forward(some[:, :-1], some[:, 1:]) / options.micro_batches
            loss.backward()
            losses[-1] += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = timed(Clock(options.device), step, options.steps)
    parameters = sum(weight.numel() for weight in model.parameters())
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else None
    return {"work": "train", "parameters": parameters, "seconds": seconds, "peak_bytes": peak,
            "first_loss": losses[0].item(), "loss": losses[-1].item()}


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
    parser.add_argument("--compute", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--data", help="a file of uint16 tokens; random ones without")
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
