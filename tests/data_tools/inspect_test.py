"""What inspect shows of samples, with a stand-in for the binary."""
import json
import pathlib
import shutil
import sys
from unittest import mock

from tools import EOS, Case
import inspect_command

HEADER = {"seq_len": 16, "samples": 3, "places": 48, "padding": 12, "documents": 4, "pieces": 5,
          "targets": 9, "kind": "tokens", "tokenizer": "model"}


class Inspect(Case):
    def setUp(self):
        super().setUp()
        stub = self.folder / "sluice"
        stub.write_text(f"#!{sys.executable}\nimport pathlib, sys\n"
                        "pathlib.Path('asked').write_text(' '.join(sys.argv[1:]))\n"
                        "print(pathlib.Path('lines').read_text(), end='')\n"
                        "sys.exit(int(pathlib.Path('code').read_text()))\n")
        stub.chmod(0o755)
        patch = mock.patch.object(inspect_command, "SLUICE", stub)
        patch.start()
        self.addCleanup(patch.stop)

    def inspect(self, header, *samples, arguments=(), code=0):
        lines = [header, *samples] if header else []
        pathlib.Path("lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
        pathlib.Path("code").write_text(str(code))
        return self.run_here("run.yaml", *arguments, command=inspect_command.command)

    def document(self, *parts):
        """A document of (text, counts) each."""
        ids = [self.tokenizer.encode(text).ids for text, _ in parts]
        counts = [[counts] * len(some) for some, (_, counts) in zip(ids, parts)]
        return {"tokens": sum(ids, []), "counts": sum(counts, [])}

    def test_what_counts_is_marked(self):
        documents = [self.document(("how are you?", 0), (" fine" + EOS, 1)),
                     self.document(("é\n", 0))]
        code, out, err = self.inspect(HEADER, {"sample": 7, "documents": documents, "padding": 3})
        self.assertEqual((code, err), (0, ""))
        self.assertIn("3 samples of 16 tokens: 4 documents in 5 pieces; padding 25.0%; 9 targets, "
                      "25.0% of the tokens\n", out)
        sizes = [len(document["tokens"]) for document in documents]
        self.assertIn(f"== sample 7: 2 documents, {sum(documents[0]['counts'])} of {sum(sizes)} "
                      "tokens count, 3 padding\n", out)
        self.assertIn(f"how are you?« fine{EOS}»\n-- document 2", out)
        self.assertTrue(out.endswith("é\n\n"))

    def test_a_character_that_is_cut_in_two_takes_nothing_else_along(self):
        document = self.document(("Hello ", 0), ("漢", 0), (" fine", 1))
        cut = len(self.document(("Hello ", 0))["tokens"]) + 1
        document["counts"][cut:] = [1] * (len(document["tokens"]) - cut)
        _, out, _ = self.inspect(HEADER, {"sample": 0, "documents": [document], "padding": 0})
        self.assertRegex(out, "\nHello \ufffd+«\ufffd+ fine»\n")

    def test_ids(self):
        document = {"tokens": [5, 6, 7, 8], "counts": [0, 1, 1, 0]}
        _, out, _ = self.inspect(HEADER, {"sample": 0, "documents": [document], "padding": 0},
                                 arguments=["--ids"])
        self.assertIn("\nids: 5 «6 7» 8\n", out)

    def test_bytes_of_a_text(self):
        document = {"tokens": list("é\x1b[2J".encode()), "counts": [1] * 6}
        header = HEADER | {"kind": "text", "tokenizer": None}
        _, out, _ = self.inspect(header, {"sample": 0, "documents": [document], "padding": 0})
        self.assertIn("\n«é␛[2J»\n", out)

    def test_streams_which_have_no_documents(self):
        stream = {"seq_len": 3, "samples": 1333, "places": 3999, "padding": 0, "documents": None,
                  "pieces": None, "targets": 3999, "kind": "text", "tokenizer": None}
        head = ("1,333 samples of 3 tokens: a stream without documents; padding 0.0%; "
                "3,999 targets, 100.0% of the tokens\n")
        sample = {"sample": 0, "documents": [{"tokens": list(b"four"), "counts": [0, 1, 1, 1]}],
                  "padding": 0}
        code, out, err = self.inspect(stream, sample)
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(out.startswith(head))
        self.assertIn("\nf«our»\n", out)
        stream["kind"] = "tokens"
        code, out, err = self.inspect(stream, sample)
        self.assertEqual((code, out), (2, head))
        self.assertIn("give --tokenizer DIR", err)
        code, out, err = self.inspect(stream, sample, arguments=["--tokenizer", "model"])
        self.assertEqual((code, err), (0, ""))
        self.assertIn("\n-- document 1: 4 tokens, 3 count\n", out)

    def test_it_asks_the_binary(self):
        self.inspect(HEADER,
                     arguments=["data.seq_len=8", "--from", "4", "--samples", "1", "seed=2"])
        self.assertEqual(pathlib.Path("asked").read_text(),
                         "data samples run.yaml --samples 1 --from 4 data.seq_len=8 seed=2")

    def test_what_the_binary_refuses(self):
        self.assertEqual(self.inspect(None, code=2), (2, "", ""))

    def test_ids_without_a_tokenizer(self):
        code, _, err = self.inspect(HEADER | {"tokenizer": None})
        self.assertEqual(code, 2)
        self.assertIn("give --tokenizer DIR", err)
        shutil.move("model", "moved")
        code, _, err = self.inspect(HEADER)
        self.assertEqual(code, 2)
        self.assertIn("model is no folder", err)
        self.assertEqual(self.inspect(HEADER, arguments=["--tokenizer", "moved"])[0], 0)
