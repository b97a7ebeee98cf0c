"""The files of a token set, which must stay as they are while they are read."""
import hashlib
import os

from failures import BadData
from records import read, reader_of


class Sources:
    """The files as they are when the command starts, and what a manifest calls them."""

    def __init__(self, paths, places):
        for path in paths:
            reader_of(path)
        self.names = {path: places.relative(path) for path in paths}
        self.status = {path: os.stat(path) for path in paths}
        self.paths = paths

    def records(self, columns=None):
        for path in self.paths:
            yield from read(path, columns)

    def described(self):
        """For the manifest; a file that has changed since is refused."""
        described = []
        for path in self.paths:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                now = os.fstat(file.fileno())
            then = self.status[path]
            if (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
                raise BadData(f"{path} was changed while it was read; start again")
            described.append({"path": self.names[path], "bytes": now.st_size,
                              "modified_ns": now.st_mtime_ns, "sha256": digest})
        return described
