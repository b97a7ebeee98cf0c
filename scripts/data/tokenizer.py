"""A tokenizer's folder: text as ids with their places in it, ids as text, and who it is."""
import hashlib
import json
import os
import re

os.environ["HF_HUB_OFFLINE"] = "1"  # a folder is all that is ever read
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from failures import BadOptions

FILES = re.compile(r"(tokenizer|vocab|merges|special_tokens_map|added_tokens|chat_template).*")


class Tokenizer:
    def __init__(self, folder):
        self.folder = folder
        self.library = load(folder)
        self.encoder = with_whole_offsets(self.library.backend_tokenizer)
        self.encoder.no_truncation()
        self.encoder.no_padding()
        self.vocab = 1 + max(self.encoder.get_vocab(with_added_tokens=True).values())
        self.eos = self.library.eos_token_id

    def encode(self, texts, special, offsets):
        """`special`: with what the tokenizer adds, such as BOS. `offsets`: not 0 everywhere."""
        encode = self.encoder.encode_batch if offsets else self.encoder.encode_batch_fast
        return encode(texts, add_special_tokens=special)

    def render(self, template, messages, tools, ask, mark):
        """A chat as text and, with `mark`, the places that {% generation %} encloses."""
        texts, marked = render_jinja_template(
            [messages], tools=tools, chat_template=template, add_generation_prompt=ask,
            return_assistant_tokens_mask=mark, **self.library.special_tokens_map)
        return texts[0], marked[0] if mark else []

    def decode_runs(self, ids, ends):
        """The text of ids[0:ends[0]], ids[ends[0]:ends[1]], ... as it reads in the whole."""
        begin, before = 0, ""
        for end in ends:
            now = self.decode(ids[:end])
            whole = now.startswith(before)  # not where a character is cut in two
            yield now[len(before):] if whole else self.decode(ids[begin:end])
            begin, before = end, now

    def decode(self, ids):
        return self.encoder.decode(ids, skip_special_tokens=False)

    def sha256(self):
        """Of what `sha256sum` prints for the tokenizer's files in the order of their names."""
        listing = hashlib.sha256()
        for name in files_of(self.folder):
            with open(os.path.join(self.folder, name), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            listing.update(f"{digest}  {name}\n".encode())
        return listing.hexdigest()


def files_of(folder):
    return sorted(name for name in os.listdir(folder)
                  if FILES.fullmatch(name) and os.path.isfile(os.path.join(folder, name)))


def load(folder):
    if not os.path.isdir(folder):
        raise BadOptions(f"{folder} is no folder; name the one with tokenizer.json")
    if not files_of(folder):
        raise BadOptions(f"no tokenizer in {folder}: it has no tokenizer.json; name the "
                         "tokenizer's own folder with --tokenizer")
    try:
        library = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the libraries raise whatever a damaged file leads to
        raise BadOptions(f"transformers cannot read the tokenizer in {folder}: "
                         f"{str(error).strip().partition(chr(10))[0]}") from None
    if not library.is_fast:
        raise BadOptions(f"the tokenizer in {folder} exists in Python only; one with a "
                         "tokenizer.json is needed")
    return library


def with_whole_offsets(encoder):
    """Byte-level tokenizers can leave spaces out of a token's place in the text; here none may."""
    def whole(value):
        if isinstance(value, dict):
            return {key: False if key == "trim_offsets" else whole(item)
                    for key, item in value.items()}
        return [whole(item) for item in value] if isinstance(value, list) else value
    description = json.loads(encoder.to_str())
    description["post_processor"] = whole(description["post_processor"])
    return tokenizers.Tokenizer.from_str(json.dumps(description))


def model_vocab(folder):
    """`vocab_size` of the model in `folder`; None where there is no config.json."""
    path = os.path.join(folder, "config.json")
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            size = json.load(file)["vocab_size"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadOptions(f"{path} has no vocab_size that can be read ({error!r})") from None
    if type(size) is not int or size <= 0:
        raise BadOptions(f"{path}: vocab_size is {size!r}, and a number above 0 was expected")
    return size
