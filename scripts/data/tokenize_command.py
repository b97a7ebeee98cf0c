"""./sluice data tokenize FILE... --model DIR -o OUT - makes a token set that a run reads."""
import argparse
import os
import sys
import time

import failures
from encoder import Encoder, batches
from formats import Format, columns_of, format_of
from records import LONGEST, too_long
from sources import Sources
from token_set import Places, Writer
from tokenizer import Tokenizer, model_vocab

LARGEST = {"uint16": 1 << 16, "uint32": 1 << 32}

HELP = """\
Reads text (.txt, .md and any other ending: a file is a document), .jsonl, .json (one array) and
.parquet with the keys
  text        {"text"}                                    everything is learned
  chat        {"messages": [{"role", "content"}, ...]}    what the assistant says is learned
              {"conversations": [{"from", "value"}, ...]}
  completion  {"prompt", "completion"}                    the completion is learned
  alpaca      {"instruction", "input", "output"}          the output is learned
and writes OUT.bin, OUT.documents, OUT.mask and OUT.json (docs/data.md)."""


def arguments():
    parser = argparse.ArgumentParser(
        prog="./sluice data tokenize", description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--model", metavar="DIR",
                        help="the model's folder: its tokenizer, and vocab_size of its config.json")
    parser.add_argument("--tokenizer", metavar="DIR", help="the tokenizer, where it lies elsewhere")
    parser.add_argument("-o", "--output", required=True, metavar="OUT")
    parser.add_argument("--format", default="auto",
                        choices=["auto", "text", "chat", "completion", "alpaca"],
                        help="auto: by the keys of the first record")
    parser.add_argument("--mask-prompt", action=argparse.BooleanOptionalAction,
                        help="only answers are learned (default, but of text); "
                             "--no-mask-prompt: all")
    parser.add_argument("--dtype", default="auto", choices=["auto", "uint16", "uint32"],
                        help="of OUT.bin; auto: uint16 where the tokenizer's ids fit")
    parser.add_argument("--eos", default="auto", choices=["auto", "yes", "no"],
                        help="end documents with the tokenizer's EOS; auto: where it has one and "
                             "no chat template ends them")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="threads; the output is the same for any number")
    parser.add_argument("--force", action="store_true", help="replace a set that is there")
    options = parser.parse_args()
    if options.model is None and options.tokenizer is None:
        parser.error("--model DIR is needed, the folder of the model that will be trained")
    if options.workers < 1:
        parser.error(f"--workers {options.workers}: at least 1")
    return options


class Progress:
    """A line on a terminal, once a second, in a `with` block."""

    def __init__(self):
        self.shown = sys.stderr.isatty()
        self.begin = self.last = time.monotonic()

    def show(self, writer):
        now = time.monotonic()
        if self.shown and now - self.last > 1:
            self.last = now
            print(f"\r{writer.documents:,} documents, {writer.tokens:,} tokens, "
                  f"{writer.tokens / (now - self.begin):,.0f} a second\033[K",
                  end="", file=sys.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr)


class Skipped:
    def __init__(self):
        self.number, self.first = 0, None

    def count(self, place):
        self.number += 1
        self.first = self.first or place


def documents(form, records, skipped):
    for place, record in records:
        document = form.document(place, record)
        if document is None:
            skipped.count(place)
        elif len(document.text) > LONGEST:
            raise too_long(place)
        else:
            yield document


def checked(options, tokenizer):
    """dtype and the model's vocabulary (None: not known)."""
    if options.eos == "yes" and tokenizer.eos is None:
        raise failures.BadOptions(f"--eos yes: the tokenizer in {tokenizer.folder} has no "
                                  "EOS token")
    dtype = options.dtype
    if dtype == "auto":
        dtype = "uint16" if tokenizer.vocab <= LARGEST["uint16"] else "uint32"
    if tokenizer.vocab > LARGEST[dtype]:
        raise failures.BadOptions(f"--dtype {dtype}: the tokenizer's ids go up to "
                                  f"{tokenizer.vocab - 1}; give --dtype uint32")
    vocab = model_vocab(options.model) if options.model else None
    if vocab is None:
        failures.say("no config.json of a model, so token ids are not compared with its vocabulary")
    elif tokenizer.vocab > vocab:
        failures.say(f"warning: the tokenizer's ids go up to {tokenizer.vocab - 1}, and the "
                     f"model's vocabulary has {vocab}; fine as long as the data has none beyond it")
    return dtype, vocab


def format_name(options, sources):
    """The format, and whether its prompts are masked."""
    name = options.format
    if name == "auto":
        place, record = next(sources.records(), (None, None))
        if place is None:
            raise failures.BadData(f"nothing to tokenize: no record in {', '.join(sources.paths)}")
        name = format_of(place, record)
    if name == "text" and options.mask_prompt:
        raise failures.BadOptions("--mask-prompt: a text has no prompt; every token of it counts")
    return name, name != "text" and options.mask_prompt is not False


def report(options, places, writer, manifest, skipped):
    print(f"{places.path('.json')}: {manifest['format']}, {writer.documents:,} documents, "
          f"{writer.tokens:,} tokens ({manifest['dtype']}), {writer.targets:,} targets "
          f"({writer.targets / writer.tokens:.1%}), longest document {writer.longest:,} tokens")
    if skipped.number:
        print(f"skipped: {skipped.number:,} empty documents (the first: {skipped.first})")
    print(f"in a run file:\n  data: {{train: {places.path('.bin')}}}")


def command():
    options = arguments()
    os.environ["RAYON_NUM_THREADS"] = str(options.workers)  # read with the first text
    os.environ["TOKENIZERS_PARALLELISM"] = "true"

    places = Places(options.output)
    sources = Sources(options.files, places)
    places.refuse_to_replace(options.files, options.force)
    folder = options.tokenizer or options.model
    folder_name = places.relative(folder)
    tokenizer = Tokenizer(folder)
    dtype, vocab = checked(options, tokenizer)
    name, masked = format_name(options, sources)

    encoder = Encoder(tokenizer, options.eos, masked, vocab)
    skipped = Skipped()
    stream = documents(Format(name, tokenizer, masked), sources.records(columns_of(name)), skipped)
    with Writer(places, dtype, masked) as writer, Progress() as progress:
        for batch in batches(stream):
            for document, ids, learned in encoder.encode(batch):
                if len(ids) == 0:
                    skipped.count(document.place)
                else:
                    writer.add(ids, learned)
            progress.show(writer)
        if writer.targets == 0:
            raise failures.BadData(f"nothing to learn: {writer.documents} documents with "
                                   f"{writer.tokens} tokens, none of which counts as a target; "
                                   f"{skipped.number} were empty")
        manifest = {
            "sluice_tokens": 1, "dtype": dtype, "tokens": writer.tokens,
            "documents": writer.documents, "targets": writer.targets, "masked": masked,
            "vocab": tokenizer.vocab, "format": name,
            "tokenizer": folder_name,
            "tokenizer_sha256": tokenizer.sha256(), "sources": sources.described()}
        writer.finish(manifest)
    report(options, places, writer, manifest, skipped)
    return 0


if __name__ == "__main__":
    failures.run(command)
