"""Files as records: a dictionary each, and the place that it came from.

A file is read as it goes: one record, or one row group of Parquet, is in memory at a time.
"""
import codecs
import json
import os
import stat
import typing

import pyarrow
import pyarrow.parquet

from failures import BadData, BadOptions

LONGEST = 16 << 20  # bytes of a record: the tokenizer may need 200 times as much for it
PIECE = 1 << 20

PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz",
          b"PK\x03\x04": "zip"}


class Place(typing.NamedTuple):
    path: str
    number: int = 0
    unit: str = "line"

    def __str__(self):
        if not self.number:
            return self.path
        row = "row " if self.unit == "row" else ""
        return f"{self.path}:{row}{self.number}"


def read(path, columns=None):
    """Yields (Place, record); of Parquet only `columns`, where given and there."""
    reader = reader_of(path)
    return reader(path, columns) if reader is parquet else reader(path)


def reader_of(path):
    try:
        status = os.stat(path)
    except OSError as error:
        raise BadOptions(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise BadOptions(f"{path} is no file; name the files themselves (FOLDER/*.jsonl)")
    with open(path, "rb") as file:
        head = file.read(4096)
    for magic, packer in PACKED.items():
        if head.startswith(magic):
            raise BadData(f"{path} is packed with {packer}; unpack it first")
    ending = os.path.splitext(path)[1].lower()
    if ending == ".parquet" or head.startswith(b"PAR1"):
        return parquet
    if ending == ".json" and head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        return json_array
    if ending in (".jsonl", ".ndjson", ".json"):
        return json_lines
    return whole_text


def too_long(place):
    return BadData(f"{place}: longer than {LONGEST >> 20} MiB, and a document is tokenized in one "
                   "piece; cut it into several")


def decoded(data, place):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start)
        if line or not place.number:
            place = place._replace(number=max(place.number, 1) + line)
        raise BadData(f"{place}: not UTF-8 (byte 0x{data[error.start]:02x}, {error.reason}); "
                      "convert it, for example: iconv -f latin1 -t utf-8") from None


def an_object(value, place):
    if not isinstance(value, dict):
        raise BadData(f"{place}: expected an object, {{\"key\": ...}}, and found "
                      f"{json.dumps(value)[:40]}")
    return value


def whole_text(path):
    place = Place(path)
    if os.path.getsize(path) > LONGEST:
        raise too_long(place)
    with open(path, "rb") as file:
        yield place, {"text": decoded(file.read().removeprefix(codecs.BOM_UTF8), place)}


def json_lines(path):
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            place = Place(path, number)
            if len(line) > LONGEST:
                raise too_long(place)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            text = decoded(line.rstrip(b"\r\n"), place)
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise BadData(f"{place}: no JSON: {reason_of(error)}") from None
            yield place, an_object(value, place)


def reason_of(error):
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (column {error.colno})"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


class ArrayText:
    """The text of a file, of which only what is not used yet is kept."""

    def __init__(self, path):
        self.file = open(path, "rb")
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.place = "", 0, Place(path, 1)
        self.ended = False

    def more(self):
        """Reads as much as is kept already, so that the work on a long record stays linear."""
        self.text, self.at = self.text[self.at:], 0
        data = self.file.read(max(PIECE, len(self.text)))
        self.ended = not data
        try:
            self.text += self.decoder.decode(data, final=self.ended)
        except UnicodeDecodeError as error:
            line = self.place.number + self.text.count("\n")
            line += error.object.count(b"\n", 0, error.start)
            raise BadData(f"{self.place._replace(number=line)}: not UTF-8 (byte "
                          f"0x{error.object[error.start]:02x}, {error.reason}); convert it, for "
                          "example: iconv -f latin1 -t utf-8") from None

    def use(self, end):
        self.place = self.place._replace(
            number=self.place.number + self.text.count("\n", self.at, end))
        self.at = end

    def next_mark(self):
        """The next character that is no white space, not used yet; "" at the end."""
        while True:
            end = self.at
            while end < len(self.text) and self.text[end] in " \t\r\n":
                end += 1
            self.use(end)
            if end < len(self.text):
                return self.text[end]
            if self.ended:
                return ""
            self.more()

    def value(self):
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                # Cut off by the end of what was read, which only more of the file can tell.
                cut = error.msg.startswith("Unterminated") or error.pos + 16 > len(self.text)
                if self.ended or not cut:
                    self.use(error.pos)
                    raise BadData(f"{self.place}: no JSON: {error.msg}") from None
                if len(self.text) - self.at > LONGEST:
                    raise too_long(self.place) from None
                self.more()
            except (ValueError, RecursionError) as error:
                raise BadData(f"{self.place}: no JSON: {reason_of(error)}") from None
            else:
                self.use(end)
                return value


def json_array(path):
    array = ArrayText(path)
    with array.file:
        array.next_mark()
        array.use(array.at + 1)  # [
        mark = array.next_mark()
        while mark != "]":
            place = array.place
            yield place, an_object(array.value(), place)
            mark = array.next_mark()
            if mark == ",":
                array.use(array.at + 1)
                array.next_mark()
            elif mark != "]":
                raise BadData(f"{array.place}: no JSON: expected ',' or ']' after a record and "
                              f"found {mark or 'the end of the file'}")
        array.use(array.at + 1)
        if mark := array.next_mark():
            raise BadData(f"{array.place}: no JSON: {mark!r} after the end of the array")


def parquet(path, columns):
    row = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if columns is not None:
                columns = [name for name in file.schema_arrow.names if name in columns] or None
            for batch in file.iter_batches(batch_size=256, columns=columns, use_threads=False):
                for record in batch.to_pylist():
                    row += 1
                    yield Place(path, row, "row"), record
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise BadData(f"{path}: no Parquet file that can be read (after row {row}): "
                      f"{str(error).partition(chr(10))[0]}") from None
