"""./sluice data inspect RUN.yaml - shows what a run is about to learn: its samples as text."""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys

import failures
from tokenizer import Tokenizer

HELP = """\
Prints samples as the run packs them: each document as text, with the tokens that count as targets
marked: green on a terminal, «so» elsewhere. What is not marked is read but not learned."""

SLUICE = pathlib.Path(__file__).resolve().parents[2] / "sluice"
VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}


def arguments():
    parser = argparse.ArgumentParser(prog="./sluice data inspect", description=HELP,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN.yaml")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="as for ./sluice train")
    parser.add_argument("--samples", type=int, default=2, metavar="N")
    parser.add_argument("--from", type=int, default=0, metavar="K", dest="first",
                        help="the first sample to show")
    parser.add_argument("--ids", action="store_true", help="token ids as well")
    parser.add_argument("--tokenizer", metavar="DIR", help="default: the one the token set names")
    return parser.parse_intermixed_args()


class Bytes:
    """Text files: a token is a byte."""

    def decode_runs(self, ids, ends):
        for begin, end in zip([0, *ends], ends):
            yield bytes(ids[begin:end]).decode("utf-8", errors="replace")


class Marks:
    def __init__(self, coloured):
        self.open, self.close = ("\033[32m", "\033[0m") if coloured else ("«", "»")

    def mark(self, text, counts):
        text = text.translate(VISIBLE)  # data must not steer the terminal
        return self.open + text + self.close if counts else text


def samples_of(options):
    """The lines of `./sluice data samples`; its own messages and exit code stay what they are."""
    command = [SLUICE, "data", "samples", options.run, "--samples", str(options.samples),
               "--from", str(options.first), *options.settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        sys.exit(process.returncode)


def tokens_of(header, options):
    if header["kind"] == "text":
        return Bytes()
    folder = options.tokenizer or header["tokenizer"]
    if folder is None:
        raise failures.BadOptions("the data does not say which tokenizer made it; "
                                  "give --tokenizer DIR")
    return Tokenizer(folder)


def print_header(header):
    used = header["places"] - header["padding"]
    if header["documents"] is None:
        source = "a stream without documents"
    else:
        source = f"{header['documents']:,} documents in {header['pieces']:,} pieces"
    print(f"{header['samples']:,} samples of {header['seq_len']:,} tokens: {source}; "
          f"padding {header['padding'] / max(header['places'], 1):.1%}; "
          f"{header['targets']:,} targets, {header['targets'] / max(used, 1):.1%} of the tokens")


def print_document(number, document, tokens, marks, options):
    ids, counts = document["tokens"], document["counts"]
    print(f"-- document {number}: {len(ids):,} tokens, {sum(counts):,} count")
    runs = [(bool(mark), len(list(run))) for mark, run in itertools.groupby(counts)]
    ends = list(itertools.accumulate(length for _, length in runs))
    texts = tokens.decode_runs(ids, ends)
    print("".join(marks.mark(text, mark) for text, (mark, _) in zip(texts, runs)))
    if options.ids:
        pieces = (" ".join(map(str, ids[end - length:end])) for end, (_, length) in zip(ends, runs))
        print("ids:", " ".join(marks.mark(piece, mark) for piece, (mark, _) in zip(pieces, runs)))


def command():
    options = arguments()
    sys.stdout.reconfigure(encoding="utf-8")
    marks = Marks(sys.stdout.isatty())
    lines = samples_of(options)
    header = next(lines, None)
    if header is None:
        return 0
    print_header(header)
    tokens = tokens_of(header, options)
    for sample in lines:
        documents = sample["documents"]
        size = sum(len(document["tokens"]) for document in documents)
        count = sum(sum(document["counts"]) for document in documents)
        print(f"\n== sample {sample['sample']}: {len(documents)} documents, {count:,} of {size:,} "
              f"tokens count, {sample['padding']:,} padding")
        for number, document in enumerate(documents, 1):
            print_document(number, document, tokens, marks, options)
    return 0


if __name__ == "__main__":
    failures.run(command)
