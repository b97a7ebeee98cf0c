#!/usr/bin/env python3
"""A chat from JSONL to an answer: `data tokenize`, `data inspect`, `train`, and transformers generates
with final/.

usage: chat.py SLUICE_BINARY

The model, made here, gives the answers that it was trained on.
Skipped (exit code 77) where transformers or the packages of scripts/data are not installed.
"""
import json
import pathlib
import random
import sys
import tempfile

import families
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COLOURS, THINGS = ["red", "green", "blue", "black"], ["house", "dog", "tree", "boat", "lamp"]
ASKED = [("blue", "tree"), ("red", "boat"), ("black", "lamp")]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
STEPS = 200


def question(colour, thing):
    return f"What colour is the {thing}? I painted it {colour}."


def answer(colour, thing):
    return f"The {thing} is {colour}."


def make_chats():
    rng = random.Random(1)
    pairs = [(c, t) for c in COLOURS for t in THINGS]
    for i in range(600):
        colour, thing = rng.choice(pairs)
        chat = [("user", question(colour, thing)), ("assistant", answer(colour, thing))]
        if i % 3 == 0:
            chat += [("user", "Are you sure?"), ("assistant", f"Yes, it is {colour}.")]
        yield [{"role": role, "content": content} for role, content in chat]


def make_model(folder, texts):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=360, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>",
                                                     pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=172, max_position_embeddings=128,
        bos_token_id=0, eos_token_id=tokenizer.eos_token_id)).save_pretrained(folder)


def data_tool(name, *arguments):
    return families.sluice(ROOT / ".deps/data/bin/python3",
                           ROOT / f"scripts/data/{name}_command.py", *arguments)


def generated(tokenizer, model, text):
    asked = tokenizer.apply_chat_template([{"role": "user", "content": text}], return_dict=True,
                                          add_generation_prompt=True, return_tensors="pt")
    ids = model.generate(**asked, max_new_tokens=20, do_sample=False)
    return tokenizer.decode(ids[0][asked["input_ids"].shape[1]:], skip_special_tokens=True)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if not (ROOT / ".deps/data").exists():
        print("skipped: scripts/install.sh data was not run")
        sys.exit(77)
    families.hush()
    chats = list(make_chats())
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "chat.jsonl").write_text(
            "".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
        make_model(folder / "model", [turn["content"] for chat in chats for turn in chat])
        data_tool("tokenize", folder / "chat.jsonl", "--model", folder / "model",
                  "-o", folder / "chat")
        (folder / "run.yaml").write_text(json.dumps({
            "version": 1, "name": "chat", "output_dir": str(folder / "${name}"),
            "model": {"path": str(folder / "model")},
            "data": {"train": str(folder / "chat.bin"), "seq_len": 96},
            "train": {"steps": STEPS, "train_micro_batch_size_per_gpu": 8},
            "optimizer": {"lr": 4e-3}, "precision": {"compute": "fp32"},
            "tiers": {"gpu": {"limit": "256MiB"}, "cpu": {"limit": "256MiB"}}}))
        shown = data_tool("inspect", folder / "run.yaml", "--samples", 2)
        families.sluice(sys.argv[1], "train", folder / "run.yaml")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "chat" / "final")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "chat" / "final")
    learned = chats[0][1]["content"]
    if f"«{learned}<|im_end|>»" not in shown:
        sys.exit(f"data inspect does not mark what the assistant says:\n{shown}")
    for pair in ASKED:
        said = generated(tokenizer, model, question(*pair))
        print(f"asked {question(*pair)!r}, it says {said!r}")
        if said != answer(*pair):
            sys.exit(f"it should say {answer(*pair)!r}")


if __name__ == "__main__":
    main()
