"""Which tokens each step trains on, from engine/data/dataset.h and engine/data/sampler.h."""
import numpy as np

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def shuffled(samples, seed, position):
    epoch, index = divmod(position, samples)
    key = mix((mix((seed + GAMMA) & MASK) + epoch + 1) & MASK)
    half = ((samples - 1).bit_length() + 1) // 2
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for r in range(1, 9):
            left, right = right, left ^ (mix(mix((key + r * GAMMA) & MASK) ^ right) & low)
        index = left << half | right
        if index < samples:
            return index


class Order:
    """The sample at a position, counted from the start of the run."""

    def __init__(self, samples, seed, shuffle):
        self.samples, self.seed, self.shuffle = samples, seed, shuffle

    def at(self, position):
        if not self.shuffle:
            return position % self.samples
        return shuffled(self.samples, self.seed, position)

    def check(self):
        """An epoch holds each sample once, and no two shuffled epochs are alike."""
        epochs = [[self.at(e * self.samples + k) for k in range(self.samples)] for e in range(2)]
        for epoch in epochs:
            assert sorted(epoch) == list(range(self.samples))
        assert (epochs[0] == epochs[1]) != self.shuffle


class Samples:
    """Sample k is the S + 1 tokens from token k S on of one row, of all files in sorted order."""

    def __init__(self, row, seq):
        self.row, self.seq = row, seq
        self.count = (len(row) - 1) // seq

    def batch(self, indices):
        """[samples, S + 1] token ids."""
        rows = [self.row[k * self.seq:(k + 1) * self.seq + 1] for k in indices]
        return np.stack(rows).astype(np.int64)


def learnable_row(length, vocab, factor, rng):
    """Each token is mostly decided by the one before it."""
    row = np.zeros(length, dtype=np.uint16)
    for i in range(1, length):
        guess = int(row[i - 1]) * factor + 3
        row[i] = (guess if rng.random() < 0.7 else rng.integers(vocab)) % vocab
    return row
