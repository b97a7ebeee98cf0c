"""Writes a token set (docs/data.md): nothing of it is in its place before all of it is complete."""
import contextlib
import json
import os
import shutil
import tempfile

import numpy as np

from failures import BadData, BadOptions, uninterrupted

PARTS = (".bin", ".documents", ".mask", ".json")  # in the order in which they appear


def utf8(path):
    """`path` where a manifest, which is JSON, and a run file can name it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BadOptions(f"{ascii(path)} is not UTF-8; rename it") from None
    return path


def is_special(path):
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


class Places:
    """Where the files of a set go: PREFIX.bin, PREFIX.json, ..."""

    def __init__(self, prefix):
        self.prefix = prefix = utf8(prefix).removesuffix(".bin")
        self.folder, self.name = os.path.split(prefix)
        self.folder = self.folder or "."
        if not self.name or self.name in (".", ".."):
            raise BadOptions(f"-o {prefix}: the name of the set is missing, as in -o "
                             f"{self.folder}/corpus")
        if not os.path.isdir(self.folder):
            raise BadOptions(f"-o {prefix}: {self.folder} is no folder; make it first")
        for path in (prefix, *map(self.path, PARTS)):
            if is_special(path):
                raise BadOptions(f"-o {prefix}: {path} is a device or a pipe; name files to make")

    def path(self, part):
        return self.prefix + part

    def refuse_to_replace(self, sources, force):
        there = [self.path(part) for part in PARTS if os.path.lexists(self.path(part))]
        for source in sources:
            if any(os.path.exists(path) and os.path.samefile(path, source) for path in there):
                raise BadOptions(f"-o {self.name} would replace {source}, which is to be read; "
                                 "choose another name")
        if there and not force:
            raise BadOptions(f"{there[0]} is there already; choose another name, or give --force")

    def relative(self, path):
        """`path` as the manifest has it: from the folder of the set, unless it was given whole."""
        if os.path.isabs(path):
            return utf8(path)
        folder, name = os.path.split(path.rstrip("/"))
        whole = os.path.join(os.path.realpath(folder or "."), name)
        return utf8(os.path.relpath(whole, os.path.realpath(self.folder)))


class Writer:
    """A `with` block; without `finish` at its end nothing is left behind."""

    def __init__(self, places, dtype, masked):
        self.places, self.dtype, self.masked = places, np.dtype(dtype).newbyteorder("<"), masked
        self.tokens = self.documents = self.targets = self.longest = 0

    def __enter__(self):
        self.work, self.files = None, {}
        parts = (".bin", ".documents") + ((".mask",) if self.masked else ())
        try:
            with uninterrupted():
                self.work = tempfile.mkdtemp(prefix=f".{self.places.name}.partial-",
                                             dir=self.places.folder)
                for part in parts:
                    self.files[part] = open(self.partial(part), "wb", buffering=1 << 20)
        except BaseException:  # the block is not begun: nobody else cleans up
            self.__exit__()
            raise
        return self

    def partial(self, part):
        return os.path.join(self.work, self.places.name + part)

    @contextlib.contextmanager
    def writing(self):
        try:
            yield
        except OSError as error:
            raise BadData(f"cannot write {self.places.path('.bin')} and its companions: "
                          f"{error.strerror}, after {self.documents} documents with {self.tokens} "
                          "tokens; nothing of them is left behind") from None

    def add(self, ids, learned):
        """A document: its ids, and for each whether it counts (None: all do)."""
        self.tokens += len(ids)
        self.documents += 1
        self.longest = max(self.longest, len(ids))
        self.targets += len(ids) - 1 if learned is None else int(np.count_nonzero(learned[1:]))
        with self.writing():
            self.files[".bin"].write(ids.astype(self.dtype).tobytes())
            self.files[".documents"].write(np.array(self.tokens, "<u8").tobytes())
            if self.masked:
                self.files[".mask"].write(learned.astype(np.uint8).tobytes())

    def finish(self, manifest):
        with self.writing():
            self.write_out(manifest)
            self.put_in_place()

    def write_out(self, manifest):
        self.files[".json"] = open(self.partial(".json"), "wb")
        self.files[".json"].write((json.dumps(manifest, indent=2) + "\n").encode())
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()

    def put_in_place(self):
        # A set that is replaced has no manifest from here on until the new one is complete.
        for part in (".json", ".mask"):
            if os.path.lexists(self.places.path(part)):
                os.unlink(self.places.path(part))
        moved = []
        try:
            for part in (part for part in PARTS if part in self.files):
                os.replace(self.partial(part), self.places.path(part))
                moved.append(self.places.path(part))
        except OSError:
            for path in moved:
                os.unlink(path)
            raise
        folder = os.open(self.places.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def __exit__(self, *_):
        for file in self.files.values():
            with contextlib.suppress(OSError):  # the error that counts is on its way
                file.close()
        if self.work is not None:
            shutil.rmtree(self.work, ignore_errors=True)
