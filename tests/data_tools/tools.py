"""What the tests of scripts/data share: tokenizers, a run of a command, a set read back."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "data"
sys.path.insert(0, str(SCRIPTS))

import failures
import numpy as np
import tokenize_command
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

EOS, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = """{% for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant'] %}
{{- raise_exception('no role ' + message.role) }}{% endif %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
MARKED = """{% for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{% generation %}{{- message.content + '<|im_end|>' }}
{%- endgeneration %}{% else %}{{- message.content + '<|im_end|>' }}{% endif %}
{{- '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
TRAINING = ["user assistant system", "Hello there, how are you? I am fine.",
            "Instruction Input Response", "the answer is four", "é ü 漢字"] * 4


def byte_level(bos=False):
    """Byte-level BPE, as GPT-2, Llama 3 and Qwen have it; with `bos` it puts one before a text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False,
                                  special_tokens=[EOS, START, END],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TRAINING, trainer)
    if bos:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(single=f"{START} $A", special_tokens=[
                (START, tokenizer.token_to_id(START))])])
    return tokenizer


def save(folder, tokenizer, template=CHATML, eos=EOS, vocab=None):
    """A model's folder, without weights."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if eos:
        config["eos_token"] = eos
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    vocab = vocab or tokenizer.get_vocab_size()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": vocab}))
    return folder


def chat(*turns, key="messages", names=("role", "content")):
    return {key: [dict(zip(names, turn)) for turn in turns]}


class Case(unittest.TestCase):
    """A test with a folder of its own, in which it stands, and a model's folder in it."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.tokenizer = byte_level()
        save(self.folder / "model", self.tokenizer)

    def write(self, name, *records):
        text = "".join(json.dumps(record) + "\n" for record in records)
        pathlib.Path(name).write_text(text, encoding="utf-8")
        return name

    def run_here(self, *arguments, command=tokenize_command.command):
        """(exit code, stdout, stderr); anything but an exit is an error of the test."""
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        with mock.patch.object(sys, "argv", ["command", *map(str, arguments)]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                self.assertRaises(SystemExit) as ended:
            failures.run(command)
        out.seek(0)
        return ended.exception.code, out.read(), err.getvalue()

    def tokenize(self, *arguments, model="model"):
        code, out, err = self.run_here(*arguments, "--model", model, "-o", "out")
        self.assertEqual((code, err), (0, ""))
        return out

    def refused(self, code, *arguments, model="model"):
        """The message of a run that must leave nothing behind."""
        before = sorted(self.folder.rglob("*"))
        got, out, err = self.run_here(*arguments, "--model", model, "-o", "out")
        self.assertEqual((got, out), (code, ""), err)
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        return err

    def start(self, *arguments, **options):
        """The same as a process of its own."""
        command = [sys.executable, "-E", SCRIPTS / "tokenize_command.py", *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **options)


class TokenSet:
    """A set as docs/data.md has it, read without the code that wrote it."""

    def __init__(self, name="out"):
        self.manifest = json.loads(pathlib.Path(name + ".json").read_text())
        ids = np.fromfile(name + ".bin", "<u2" if self.manifest["dtype"] == "uint16" else "<u4")
        ends = np.fromfile(name + ".documents", "<u8").astype(int)
        mask = np.ones(len(ids), np.uint8)
        if self.manifest["masked"]:
            mask = np.fromfile(name + ".mask", np.uint8)
        assert len(ids) == len(mask) == ends[-1] == self.manifest["tokens"]
        begins = [0, *ends[:-1]]
        self.documents = [ids[a:b].tolist() for a, b in zip(begins, ends)]
        self.masks = [mask[a:b].tolist() for a, b in zip(begins, ends)]
        assert self.manifest["documents"] == len(self.documents)
        assert self.manifest["targets"] == sum(sum(mask[1:]) for mask in self.masks)

    def shown(self, tokenizer):
        """Each document as text, what counts in brackets."""
        return [self.marked(tokenizer, *pair) for pair in zip(self.documents, self.masks)]

    @staticmethod
    def marked(tokenizer, ids, mask):
        text, at = "", 0
        while at < len(ids):
            end = next((k for k in range(at, len(ids)) if mask[k] != mask[at]), len(ids))
            part = tokenizer.decode(ids[at:end], skip_special_tokens=False)
            text += f"[{part}]" if mask[at] else part
            at = end
        return text
