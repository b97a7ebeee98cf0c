#!/usr/bin/env python3
"""Steps of a model under DeepSpeed, one rank on the CPU; run by vs_deepspeed, prints one line of JSON.

bf16 with an AdamW of fp32 state. `zero2-cpu` is ZeRO-2 with the state in host memory, `zero3-nvme`
ZeRO-3 with weights and state on a drive, read and written ahead through 12 buffers of the largest
tensor. Its requests are of 1 MiB, up to 32 at a time.
"""
import argparse
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEERS = os.path.join(ROOT, ".deps", "peers")
os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517",
               "TORCH_EXTENSIONS_DIR": os.path.join(PEERS, "extensions"),
               "PATH": os.path.join(PEERS, "bin") + os.pathsep + os.environ["PATH"]}
sys.path.insert(0, os.path.join(ROOT, "scripts", "gpu"))
# pylint: disable=wrong-import-position
import deepspeed
import torch

from torch_baseline import Clock, batches, timed
from torch_models import model_of


def zero(options, largest):
    if options.way == "zero2-cpu":
        return {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    drive = {"device": "nvme", "nvme_path": options.nvme}
    return {"stage": 3, "sub_group_size": largest,
            "offload_param": drive | {"buffer_count": 12, "buffer_size": largest},
            "offload_optimizer": drive | {"buffer_count": 12, "pipeline_read": True,
                                          "pipeline_write": True}}


def settings(options, largest):
    return {
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": options.micro_batches,
        "gradient_clipping": 1.0, "bf16": {"enabled": True}, "steps_per_print": 1 << 30,
        "optimizer": {"type": "AdamW",
                      "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "zero_optimization": zero(options, largest),
        "aio": {"block_size": 1 << 20, "queue_depth": 32, "single_submit": False,
                "overlap_events": True},
    }


def train(options):
    torch.manual_seed(1)
    with open(options.config, encoding="utf-8") as file:
        config = json.load(file)
    model = model_of(config)
    sizes = [weight.numel() for weight in model.parameters()]
    deepspeed.init_distributed("gloo")
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                  config=settings(options, max(sizes)))[0]
    options.device, losses = "cpu", []
    tokens = batches(options, config["vocab_size"])

    def step():
        losses.append(0)
        for _ in range(options.micro_batches):
            some = next(tokens)
            loss = engine(some[:, :-1], some[:, 1:])
            engine.backward(loss)
            engine.step()
            losses[-1] += loss.item() / options.micro_batches

    seconds = timed(Clock("cpu"), step, options.steps)
    return {"parameters": sum(sizes), "seconds": seconds, "first_loss": losses[0],
            "loss": losses[-1], "deepspeed": deepspeed.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="a model as the keys of a config.json")
    parser.add_argument("--way", required=True, choices=["zero2-cpu", "zero3-nvme"])
    parser.add_argument("--nvme", required=True, metavar="FOLDER", help="on the drive")
    parser.add_argument("--data", required=True, help="a file of uint16 tokens")
    for name in ("--steps", "--seq-len", "--micro-batch", "--micro-batches"):
        parser.add_argument(name, type=int, required=True)
    print(json.dumps(train(parser.parse_args())), flush=True)
    os._exit(0)  # past DeepSpeed's I/O threads, which now and then abort where they are destroyed


if __name__ == "__main__":
    main()
