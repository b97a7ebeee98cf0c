#!/usr/bin/env python3
"""Reads tensors out of a checkpoint of a run: master weights and both moments of Adam, by name.

usage: load_checkpoint.py CHECKPOINT [TENSOR...]

Without a TENSOR it lists them; of those named it prints statistics. Needs numpy and safetensors,
nothing of sluice. What the files hold is docs/checkpoints.md; sums are not looked at here
(`sluice checkpoint verify`), nor the gradient of an update that is still to come: the state is
without it. In a program:

    from load_checkpoint import Checkpoint
    checkpoint = Checkpoint("runs/chat/checkpoints/step-500")
    state = checkpoint.read("model.norm.weight")  # {"master": array, "m": array, "v": array}
"""
import json
import math
import pathlib
import sys

import numpy as np
from safetensors import safe_open

PARTS = ("master", "m", "v")
VERSIONS = (1, 2)


class Checkpoint:
    """A folder with COMPLETE, manifest.json and files of records."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        if not (self.folder / "COMPLETE").is_file():
            raise ValueError(f"{self.folder} is no complete checkpoint: it has no file COMPLETE")
        self.manifest = json.loads((self.folder / "manifest.json").read_text())
        if self.manifest["version"] not in VERSIONS:
            raise ValueError(f"{self.folder}: format {self.manifest['version']}, not one of "
                             f"{VERSIONS}")
        self._tensors = {tensor["name"]: (index, tensor)
                         for index, segment in enumerate(self.manifest["segments"])
                         for tensor in segment["tensors"]}

    def names(self):
        return list(self._tensors)

    def pending(self):
        """Of the update of the last step, where it is still to come: "applied", or "skipped"."""
        return self.manifest["position"].get("pending")

    def shape(self, name):
        return tuple(self._tensors[name][1]["shape"])

    def read(self, name, parts=PARTS):
        """The parts of a tensor, each a float32 array. Only its own elements are read."""
        index, tensor = self._tensors[name]
        segment = self.manifest["segments"][index]["name"]
        begin = tensor["offset"]
        end = begin + math.prod(tensor["shape"])
        state = {part: np.empty(end - begin, np.float32) for part in parts}
        for record in self.manifest["records"]:
            first, last = record["first"], record["first"] + record["elems"]
            low, high = max(begin, first), min(end, last)
            if record["segment"] != index or low >= high:
                continue
            with safe_open(self.folder / self.manifest["files"][record["file"]], "np") as file:
                for part in parts:
                    values = file.get_slice(f"{segment}/{part}[{first}:{last}]")
                    state[part][low - begin:high - begin] = values[low - first:high - first]
        return {part: values.reshape(tensor["shape"]) for part, values in state.items()}


def main(folder, *names):
    checkpoint = Checkpoint(folder)
    unknown = [name for name in names if name not in checkpoint.names()]
    if unknown:
        raise ValueError(f"{folder} has no tensor {unknown[0]}; without one, all are listed")
    if not names:
        waits = ", its update pending" if checkpoint.pending() else ""
        print(f"step {checkpoint.manifest['position']['step']}{waits}")
    for name in names or checkpoint.names():
        print(name, list(checkpoint.shape(name)))
        for part, values in checkpoint.read(name).items() if names else ():
            print(f"  {part:6} mean {values.mean():.6g}, std {values.std():.6g}, "
                  f"from {values.min():.6g} to {values.max():.6g}")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__.strip())
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
