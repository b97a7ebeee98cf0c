"""The models that are measured, what fits where by rough count, and T50 and T90."""
import dataclasses

GIB = 1 << 30

# Bytes per parameter of (device, host, drives): weights and gradient in bf16, 12 of state. Plain
# PyTorch has all in fp32, and under autocast a copy of the weights in bf16.
PER_PARAMETER = {
    "hbm": (16, 0, 0),
    "dram": (2, 14, 0),
    "state": (4, 12, 0),
    "nvme": (2, 2, 14),  # the final weights lie on that drive too
    "torch": (18, 0, 0),
}
# Over several micro-batches the gradient is a sum in fp32, in place of one in bf16 or beside it.
SUM_PER_PARAMETER = {"hbm": (4, 0, 0), "dram": (0, 4, 0), "state": (4, 0, 0), "nvme": (0, 4, 0),
                     "torch": (0, 0, 0)}


@dataclasses.dataclass
class Shape:
    """A Llama-like model; `layers` is the most that is asked for."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    tied: bool = False
    seq_len: int = 2048

    def config(self, layers):
        return {"model_type": "llama", "vocab_size": self.vocab, "hidden_size": self.hidden,
                "num_hidden_layers": layers, "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads, "intermediate_size": self.intermediate,
                "max_position_embeddings": self.seq_len, "rope_theta": 500000.0,
                "tie_word_embeddings": self.tied}

    def parameters(self, layers):
        kv = self.hidden * self.kv_heads // self.heads
        layer = self.hidden * (2 * self.hidden + 2 * kv + 3 * self.intermediate + 2)
        return self.vocab * self.hidden * (1 if self.tied else 2) + layers * layer + self.hidden

    def flops_per_token(self, layers):
        """Forward and backward, causal, whatever is run again: as `flops` in metrics.jsonl."""
        kv = self.hidden * self.kv_heads // self.heads
        layer = self.hidden * (2 * self.hidden + 2 * kv + 3 * self.intermediate)
        attention = 2 * self.hidden * (self.seq_len + 1)
        return 3 * (2 * (layers * layer + self.vocab * self.hidden) + layers * attention)

    def activations(self, layers, tokens):
        """Bytes of the layers' inputs, and of what is there of one layer at a time."""
        return 2 * tokens * (layers * self.hidden + 12 * self.hidden + 4 * self.intermediate)


SHAPES = {
    "200m": Shape(1024, 12, 16, 4, 2816, 32000),  # of bench/e2e
    "1.5b": Shape(1536, 28, 12, 2, 8960, 151936, tied=True),  # as Qwen2.5-1.5B
    "8b": Shape(4096, 32, 32, 8, 14336, 128256),  # as Llama-3-8B
    "14b": Shape(5120, 48, 40, 8, 13824, 152064),  # as Qwen2.5-14B
    "largest": Shape(5120, 400, 40, 8, 13824, 152064),  # the same, with as many layers as it takes
    "tiny": Shape(64, 4, 4, 2, 128, 256, tied=True, seq_len=64),  # to try these scripts
}

GPT2_124M = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768,
             "n_layer": 12, "n_head": 12, "tie_word_embeddings": True}  # of bench/e2e


@dataclasses.dataclass
class Batch:
    """What a step takes."""
    seq_len: int
    micro_batch: int  # samples
    micro_batches: int = 1

    @property
    def tokens(self):
        return self.seq_len * self.micro_batch * self.micro_batches


def batch_of(shape, tokens, box):
    """So many tokens per step, in one micro-batch where the card is not a small one."""
    at_once = min(tokens, 1 << (16 if box.device > 64 * GIB else 13))
    micro_batch = max(1, at_once // shape.seq_len)
    return Batch(shape.seq_len, micro_batch, max(1, tokens // (shape.seq_len * micro_batch)))


def layers_by_count(shape, placement, batch, box, more=0):
    """How many layers should fit, at most those of the shape; roughly, since the program decides.
    `more`: bytes that the device needs besides."""
    rooms = (0.93 * box.device - 2 * GIB, box.host - 6 * GIB, 0.9 * box.disk)
    each = PER_PARAMETER[placement]
    if batch.micro_batches > 1:
        each = tuple(map(sum, zip(each, SUM_PER_PARAMETER[placement])))

    def fits(layers):
        needs = [size * shape.parameters(layers) for size in each]
        needs[0] += shape.activations(layers, batch.seq_len * batch.micro_batch) + more
        return all(need <= room for need, room in zip(needs, rooms))

    return max((n for n in range(1, shape.layers + 1) if fits(n)), default=0)


def most(fits, top, guess):
    """The largest n up to `top` for which `fits(n)` holds, within a sixteenth; 0 where none does.
    It asks near `guess` first."""
    low, high = 0, top + 1
    n = max(1, min(guess, top))
    step = max(1, n // 8)
    while high - low > max(1, low // 16):
        if fits(n):
            low = n
        else:
            high = n
        n = min(top, low + step) if high > top else (low + high) // 2
        step *= 2
    return low


def tokens_for(share, whole, points):
    """The tokens per step at which a rate reaches `share` of the rate `whole`.

    points: (tokens per step, tokens per s), ascending. Between two of them the seconds of a step
    are taken to grow evenly with its tokens. A dict: {"tokens": T}, or where the curve begins above
    it {"at_most": T}, or ends below it {"more_than": T}."""
    wanted = share * whole
    if points[0][1] >= wanted:
        return {"at_most": points[0][0]}
    for (fewer, slow), (more, fast) in zip(points, points[1:]):
        if fast >= wanted:
            begin, end = fewer / slow, more / fast
            slope = (end - begin) / (more - fewer)
            return {"tokens": round(wanted * (begin - slope * fewer) / (1 - wanted * slope))}
    return {"more_than": points[-1][0]}
