#!/usr/bin/env python3
"""Reads a checkpoint with scripts/load_checkpoint.py, and the same weights as sluice exports them.

usage: load_checkpoint.py SLUICE_BINARY

Masters must equal the exported fp32 weights bit for bit, the moments must be what one step of Adam
from zero leaves, and transformers must load what was exported. Skipped (exit code 77) where
transformers is not installed.
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "load_checkpoint.py"
BETAS = (0.9, 0.95)

# A layer has many records in several files, and a record several tensors.
RUN = {
    "version": 1, "name": "run", "output_dir": "runs/run",
    "model": {"config": {"model_type": "gpt2", "vocab_size": 300, "n_positions": 16,
                         "n_embd": 96, "n_layer": 3, "n_head": 2}},
    "data": {"train": ["tokens.bin"], "seq_len": 16},
    "train": {"steps": 1, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": None},
    "optimizer": {"betas": list(BETAS)}, "precision": {"compute": "fp32"},
    "zero_optimization": {"sub_group_size": "64KiB"},
    "tiers": {"gpu": {"limit": "512MiB"}, "cpu": {"limit": "512MiB"}},
    "checkpoint": {"every": 1, "shard_size": "1MiB", "final_dtype": "fp32"},
}


def load_script():
    spec = importlib.util.spec_from_file_location("load_checkpoint", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout.decode()}")
    return done.stdout.decode()


def main(binary):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "run.yaml").write_text(json.dumps(RUN))
        np.random.default_rng(5).integers(0, 300, 4000).astype("<u2").tofile(folder / "tokens.bin")
        run(folder, binary, "train", "run.yaml")
        saved = folder / "runs" / "run" / "checkpoints" / "step-1"
        run(folder, binary, "export", str(saved), "--dtype", "fp32", "--shard-size", "1GiB",
            "-o", "out")
        exported = load_file(folder / "out" / "model.safetensors")

        checkpoint = load_script().Checkpoint(saved)
        assert len(checkpoint.manifest["files"]) > 2
        assert sorted(checkpoint.names()) == sorted(exported)
        moved = 0
        for name, weights in exported.items():
            state = checkpoint.read(name)
            assert state["master"].dtype == np.float32 and state["master"].shape == weights.shape
            assert np.array_equal(state["master"], weights), name
            # m = (1 - beta1) g and v = (1 - beta2) g^2
            gradient = state["m"].astype(np.float64) / (1 - BETAS[0])
            np.testing.assert_allclose(state["v"], (1 - BETAS[1]) * gradient ** 2, rtol=1e-5,
                                       atol=1e-30, err_msg=name)
            moved += np.count_nonzero(state["v"])
        assert moved > 100_000

        model = AutoModelForCausalLM.from_pretrained(folder / "out")
        for name, weights in exported.items():
            assert np.array_equal(model.state_dict()[name].numpy(), weights), name

        listed = run(folder, sys.executable, str(SCRIPT), str(saved))
        assert all(f"{name} {list(weights.shape)}" in listed for name, weights in exported.items())
        said = run(folder, sys.executable, str(SCRIPT), str(saved), "transformer.wte.weight")
        mean = exported["transformer.wte.weight"].mean()
        assert f"master mean {mean:.6g}" in said, said
        print(f"{len(exported)} tensors of {len(checkpoint.manifest['records'])} records agree")


if __name__ == "__main__":
    main(sys.argv[1])
