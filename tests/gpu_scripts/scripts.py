"""What the tests of scripts/gpu share: its modules, a folder each, programs that stand in."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS / "gpu"))


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out"

    def program(self, name, text, folder="build"):
        """A script of the shell that stands in for a program."""
        path = self.folder / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def call(self, script, *arguments):
        """(exit code, all output); programs in the folder `path` come first in PATH."""
        path = f"{self.folder / 'path'}:{os.environ['PATH']}"
        done = subprocess.run([SCRIPTS / script, self.out, *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env=os.environ | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout
