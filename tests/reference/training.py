"""The run of a case in plain PyTorch: torch's own optimizers, the documented learning rate."""
import math
import re

import torch
import torch.nn.functional as F

from models import FORWARD, Bf16, Fp16, Fp32, Weights

PRECISION = {"fp32": Fp32, "bf16": Bf16, "fp16": Fp16}


def learning_rate(schedule, base, step, steps):
    """engine/data/learning_rate.h, of step 0, 1, ..."""
    warmup, floor = schedule["warmup_steps"], base * schedule["min_lr_ratio"]
    if isinstance(warmup, float):
        warmup = round(warmup * steps)
    if step < warmup:
        return base * (step + 1) / warmup
    begin = warmup if schedule["type"] != "wsd" else max(warmup, steps - round(steps / 5))
    done = max(0.0, (step - begin) / (steps - begin))
    falls = {"constant": 0.0, "linear": done, "wsd": done,
             "cosine": (1 - math.cos(math.pi * done)) / 2}
    return base - (base - floor) * falls[schedule["type"]]


def make_optimizer(case, masters):
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[case.optimizer["type"]]
    decayed = [p for p in masters.values() if p.dim() >= 2]
    others = [p for p in masters.values() if p.dim() < 2]
    return kind([dict(params=decayed, weight_decay=case.optimizer["weight_decay"]),
                 dict(params=others, weight_decay=0.0)],
                betas=case.optimizer["betas"], eps=case.optimizer["eps"])


class LossScale:
    """Halved after a gradient that is not finite, doubled after `window` that were; 1 but in fp16."""

    def __init__(self, case):
        self.tried = case.compute == "fp16"
        self.value, self.window, self.held = 2**case.scale_power if self.tried else 1, case.window, 0

    def update(self, finite):
        if not self.tried:
            return
        self.held = self.held + 1 if finite else 0
        if not finite:
            self.value //= 2
        elif self.held == self.window:
            self.value, self.held = self.value * 2, 0


def cross_entropy(case, weights, tokens):
    logits = FORWARD[case.model["model_type"]](weights, case.model, tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def segment_of(name):
    """A layer, or what stands outside of them by itself: an embedding, the last norm, the head."""
    layer = re.match(r".*\.\d+(?=\.)", name)
    return layer[0] if layer else name.rpartition(".")[0]


def clip_gradients(case, masters):
    """The norms before it and the factors, of each segment or of all as one."""
    groups = {}
    for name, p in masters.items():
        group = segment_of(name) if case.clip_scope == "segment" else "all"
        groups.setdefault(group, []).append(p.grad)
    norms, factors = {}, {}
    for group, gradients in groups.items():
        norm = math.sqrt(sum(g.double().pow(2).sum().item() for g in gradients))
        limit = math.inf if case.clipping is None else case.clipping
        norms[group], factors[group] = norm, min(1.0, limit / (norm + 1e-6))
        for g in gradients:
            g *= factors[group]
    return norms, factors


def backward(case, weights, loss_scale, samples, order, step):
    """The loss of a step, whose gradient is summed into the masters."""
    loss = 0.0
    for micro_batch in range(case.accumulation):
        first = (step * case.accumulation + micro_batch) * case.batch
        indices = [order.at(k) for k in range(first, first + case.batch)]
        part = cross_entropy(case, weights, torch.from_numpy(samples.batch(indices)))
        part = part / case.accumulation
        (part * loss_scale).backward()
        loss += part.item()
    for p in weights.masters.values():
        p.grad /= loss_scale
    return loss


def apply(optimizer, masters, left):
    """What a step has left: its clipped gradient and its learning rate; None if it is skipped."""
    if left is None:
        return
    gradients, lr = left
    for p, gradient in zip(masters.values(), gradients):
        p.grad = gradient
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()  # counts what is applied, for the bias corrections


def train(case, initial, samples, order, validation):
    """One dict per step, with the keys of metrics.jsonl; and the weights at the end."""
    masters = {name: torch.nn.Parameter(torch.from_numpy(value.copy()))
               for name, value in initial.items()}
    weights = Weights(masters, PRECISION[case.compute])
    optimizer, scale, lines = make_optimizer(case, masters), LossScale(case), []
    pending = None
    for step in range(case.steps):
        optimizer.zero_grad(set_to_none=True)  # one that is pending lives on
        loss = backward(case, weights, scale.value, samples, order, step)
        norms, factors = clip_gradients(case, masters)
        norm = math.hypot(*norms.values())
        lr = learning_rate(case.schedule, case.optimizer["lr"], step, case.steps)
        finite = math.isfinite(norm)
        own = ([p.grad for p in masters.values()], lr) if finite else None
        delayed = case.update == "delayed" and step >= case.delayed_update_start
        # Late, a gradient is applied behind the next one's pass, which has not seen it.
        due, pending = (pending, own) if delayed else (own, None)
        apply(optimizer, masters, due)
        line = dict(step=step + 1, loss=loss, gnorm=norm, factors=factors, lr=lr,
                    skipped=not finite, delayed=delayed,
                    tokens=case.batch * case.accumulation * samples.seq)
        if case.clip_scope == "segment":
            line["largest_gnorm"] = max(norms.values())
        if scale.tried:
            line["loss_scale"] = scale.value
        scale.update(finite)
        last = step + 1 == case.steps
        evaluated = last or (step + 1) % case.evaluate_every == 0
        if last or (evaluated and case.drain):
            apply(optimizer, masters, pending)
            pending = None
        if evaluated:
            line["valid_loss"] = validate(case, weights, validation)
        lines.append(line)
    return lines, {name: p.detach().numpy() for name, p in masters.items()}


def validate(case, weights, validation):
    """The first micro-batches of the validation file, in order."""
    with torch.no_grad():
        losses = [cross_entropy(case, weights, torch.from_numpy(validation.batch(
            range(k * case.batch, (k + 1) * case.batch)))).item()
            for k in range(case.evaluation_batches)]
    return sum(losses) / len(losses)
