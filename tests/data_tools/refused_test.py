"""Input that is wrong ends in a message with its place, an exit code, and nothing written."""
import gzip
import json
import os
import pathlib
import resource
import shutil
import signal
import tempfile
import time
from unittest import mock

import numpy as np
import pyarrow
import pyarrow.parquet

from tools import CHATML, Case, chat, save
import failures
from formats import Format
from token_set import Places, Writer

FINE = json.dumps({"text": "fine"}) + "\n"
CHAT = chat(("user", "Hello"), ("assistant", "fine"))


class Data(Case):
    def test_lines_that_are_no_records(self):
        for line, *said in (
                ('{"text": "cut', "no JSON", "Unterminated string"),
                ('{"text": 1e}', "no JSON", "(column 11)"),
                ("[" * 100000, "nested too deeply"),
                ("9" * 5000, "no JSON"),
                ("[1, 2]", "expected an object", "[1, 2]"),
                ('"text"', "expected an object"),
                ('{"txt": "Hello"}', "no 'text'", "format is text", "keys here are txt"),
                ("{}", "no 'text'", "keys here are none"),
                ('{"text": null}', "text is null", "a string was expected"),
                ('{"text": ["Hello"]}', "text is a list", "a string was expected"),
                ('{"text": "\\ud83d"}', "half of a surrogate pair", "\\ud83d"),
                (json.dumps(CHAT), "no 'text'", "format is text")):
            with self.subTest(line=line[:40]):
                pathlib.Path("a.jsonl").write_text(FINE * 2 + line + "\n" + FINE)
                message = self.refused(4, "a.jsonl")
                for part in ("a.jsonl:3: ", *said):
                    self.assertIn(part, message)

    def test_arrays_that_are_cut_or_broken(self):
        long = FINE.strip() + "," + "\n" * 3000000  # of several reads
        for text, *said in (
                ("[" + long + '{"text": }]', "a.json:3000001: no JSON: Expecting value"),
                ("[" + long + '{"text": "x', "a.json:3000001: no JSON: Unterminated"),
                ("[" + long + "7]", "a.json:3000001: expected an object"),
                ("[\n" + FINE + FINE + "]", "a.json:3: no JSON: expected ',' or ']'"),
                ("[\n" + FINE, "the end of the file"),
                ("[\n" + FINE + "]\n{}", "a.json:4: no JSON: '{' after the end"),
                ("[]", "nothing to tokenize: no record in a.json")):
            with self.subTest(text=text[-20:]):
                pathlib.Path("a.json").write_text(text)
                message = self.refused(4, "a.json")
                for part in said:
                    self.assertIn(part, message)

    def test_bytes_that_are_no_utf8(self):
        for name, data, place in (
                ("a.jsonl", FINE.encode() + b'{"text": "caf\xe9"}\n', "a.jsonl:2: "),
                ("a.json", b'[{"text": "fine"},\n{"text": "caf\xe9"}]\n', "a.json:2: "),
                ("a.txt", b"one\ntwo\nthree caf\xe9 \n", "a.txt:3: ")):
            with self.subTest(name=name):
                pathlib.Path(name).write_bytes(data)
                message = self.refused(4, name)
                for part in (place, "not UTF-8 (byte 0xe9", "iconv"):
                    self.assertIn(part, message)

    def test_chats(self):
        for record, *said in (
                (chat(("user", "Hello")), "no turn of the assistant", "(roles: user)",
                 "--no-mask-prompt"),
                (chat(("user", "Hello"), ("robot", "fine"), ("assistant", "fine")), "refuses",
                 "no role robot", "(roles: user, robot, assistant)"),
                ({"messages": "Hello"}, "messages is a string", "a list of messages"),
                ({"messages": ["Hello"]}, "messages[0] is a string", "an object was expected"),
                (chat(("user", "Hello"), ("assistant", None)), "messages[1]: content is null"),
                (chat(("user", "Hello"), (7, "fine")), "messages[1]: role is a number"),
                (chat(("user", [{"type": "image"}]), ("assistant", "fine")), "content is a list"),
                (CHAT | {"tools": "calculator"}, "tools is a string, and a list was expected"),
                ({"text": "Hello"}, "no 'messages'", "format is chat")):
            with self.subTest(record=record):
                message = self.refused(4, self.write("a.jsonl", CHAT, record))
                for part in ("a.jsonl:2: ", *said):
                    self.assertIn(part, message)

    def test_what_is_no_chat_is_told_the_key_of_the_chats_before_it(self):
        turns = chat(("human", "Hello"), ("gpt", "fine"), key="conversations",
                     names=("from", "value"))
        chats = self.write("a.jsonl", turns)
        self.assertIn("b.jsonl:1: no 'conversations'",
                      self.refused(4, chats, self.write("b.jsonl", {"text": "fine"})))
        self.assertIn("b.jsonl:1: no 'messages'",
                      self.refused(4, "b.jsonl", "--format", "chat"))

    def test_completions(self):
        first = {"prompt": "Hello", "completion": "fine"}
        for record, said in (({"prompt": "Hello"}, "no 'completion'"),
                             ({"prompt": 1, "completion": ""}, "prompt is a number"),
                             ({"prompt": [], "completion": "fine"}, "completion is a string")):
            with self.subTest(record=record):
                message = self.refused(4, self.write("a.jsonl", first, record))
                self.assertIn("a.jsonl:2: " + said, message)

    def test_keys_of_no_format(self):
        message = self.refused(4, self.write("a.jsonl", {"question": "Hello", "answer": "fine"}))
        self.assertIn("a.jsonl:1: no format has the keys question, answer; known are", message)

    def test_parquet(self):
        table = pyarrow.Table.from_pylist([{"question": "Hello"}])
        pyarrow.parquet.write_table(table, "a.parquet")
        self.assertIn("a.parquet:row 1: no format has the keys question",
                      self.refused(4, "a.parquet"))
        self.assertIn("no 'text'", self.refused(4, "a.parquet", "--format", "text"))
        table = pyarrow.Table.from_pylist([{"text": "fine"}, {"text": None}])
        pyarrow.parquet.write_table(table, "a.parquet")
        self.assertIn("a.parquet:row 2: text is null", self.refused(4, "a.parquet"))
        whole = pathlib.Path("a.parquet").read_bytes()
        pathlib.Path("a.parquet").write_bytes(whole[:-20])
        self.assertIn("a.parquet: no Parquet file that can be read", self.refused(4, "a.parquet"))

    def test_packed_files(self):
        pathlib.Path("a.jsonl.gz").write_bytes(gzip.compress(FINE.encode()))
        self.assertIn("a.jsonl.gz is packed with gzip; unpack", self.refused(4, "a.jsonl.gz"))

    def test_nothing(self):
        for name, text, said in (("a.jsonl", "", "no record in a.jsonl"),
                                 ("a.jsonl", "\n\n", "no record in a.jsonl"),
                                 ("a.txt", "", "1 were empty"),
                                 ("a.jsonl", '{"text": " "}', "1 were empty")):
            with self.subTest(name=name, text=text):
                pathlib.Path(name).write_text(text)
                self.assertIn(said, self.refused(4, name))

    def test_a_document_that_is_too_long_for_one(self):
        with open("a.jsonl", "wb") as file:
            file.truncate((16 << 20) + 1)
        self.assertIn("a.jsonl:1: longer than 16 MiB", self.refused(4, "a.jsonl"))
        os.rename("a.jsonl", "a.txt")
        self.assertIn("a.txt: longer than 16 MiB", self.refused(4, "a.txt"))


class Options(Case):
    def setUp(self):
        super().setUp()
        self.write("a.jsonl", {"text": "fine"})
        self.write("chat.jsonl", CHAT)

    def refused_with(self, folder, *arguments):
        return self.refused(2, *arguments, model=folder)

    def test_options(self):
        (self.folder / "bin").mkdir()
        for arguments, said in ((["nowhere.jsonl"], "nowhere.jsonl: No such file"),
                                (["bin"], "bin is no file"),
                                (["a.jsonl", "--workers", "0"], "--workers 0"),
                                (["a.jsonl", "--format", "csv"], "invalid choice: 'csv'"),
                                (["a.jsonl", "--mask-prompt"], "a text has no prompt"),
                                (["a.jsonl", "-o", "nowhere/x"], "nowhere is no folder"),
                                (["a.jsonl", "-o", "bin/"], "the name of the set is missing")):
            with self.subTest(arguments=arguments):
                code, _, err = self.run_here("--model", "model", "-o", "out", *arguments)
                self.assertEqual(code, 2)
                self.assertIn(said, err)
        code, _, err = self.run_here("a.jsonl", "-o", "out")
        self.assertEqual(code, 2)
        self.assertIn("--model DIR is needed", err)

    def test_what_is_there_is_not_replaced(self):
        for part in ("bin", "documents", "mask", "json"):
            with self.subTest(part=part):
                pathlib.Path(f"out.{part}").touch()
                self.assertIn(f"out.{part} is there already", self.refused(2, "a.jsonl"))
                os.unlink(f"out.{part}")

    def test_what_is_no_file_is_no_place_for_a_set(self):
        os.mkfifo("fifo")
        os.mkfifo("set.bin")
        before = sorted(self.folder.rglob("*"))
        for prefix, named in (("fifo", "fifo"), ("fifo.bin", "fifo"), ("set", "set.bin"),
                              ("set.bin", "set.bin"), ("/dev/full", "/dev/full")):
            with self.subTest(prefix=prefix):
                code, _, err = self.run_here("a.jsonl", "--model", "model", "--force", "-o", prefix)
                self.assertEqual(code, 2)
                self.assertIn(f"{named} is a device or a pipe", err)
                self.assertEqual(sorted(self.folder.rglob("*")), before)
        (self.folder / "out").mkdir()
        self.tokenize("a.jsonl")

    def test_names_that_a_manifest_cannot_hold(self):
        odd = os.fsdecode(b"caf\xe9")
        shutil.copy("a.jsonl", odd + ".jsonl")
        shutil.copytree("model", odd)
        for arguments in ([odd + ".jsonl"], [odd + ".jsonl", "-o", os.path.join(odd, "out")],
                          ["a.jsonl", "-o", odd], ["a.jsonl", "--tokenizer", odd]):
            with self.subTest(arguments=list(map(ascii, arguments))):
                before = sorted(self.folder.rglob("*"))
                code, out, err = self.run_here("--model", "model", "-o", "out", *arguments)
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn("is not UTF-8; rename it", err)
                self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_an_input_is_never_replaced(self):
        pathlib.Path("out.json").write_text("[" + FINE + "]")
        self.assertIn("would replace out.json", self.refused(2, "out.json", "--force"))

    def test_tokenizers(self):
        (self.folder / "empty").mkdir()
        save(self.folder / "broken", self.tokenizer)
        (self.folder / "broken" / "tokenizer.json").write_text("{")
        save(self.folder / "sizeless", self.tokenizer)
        (self.folder / "sizeless" / "config.json").write_text("{}")
        save(self.folder / "yes", self.tokenizer)
        (self.folder / "yes" / "config.json").write_text('{"vocab_size": true}')
        save(self.folder / "endless", self.tokenizer, eos=None)
        for folder, arguments, said in (
                ("nowhere", [], "nowhere is no folder"), ("empty", [], "no tokenizer in empty"),
                ("broken", [], "cannot read the tokenizer in broken"),
                ("sizeless", [], "sizeless/config.json has no vocab_size"),
                ("yes", [], "yes/config.json: vocab_size is True"),
                ("endless", ["--eos", "yes"], "has no EOS token")):
            with self.subTest(folder=folder):
                self.assertIn(said, self.refused_with(folder, "a.jsonl", *arguments))

    def test_no_chat_template(self):
        save(self.folder / "plain", self.tokenizer, template=None)
        self.assertIn("plain has no chat template", self.refused_with("plain", "chat.jsonl"))

    def test_a_template_whose_answers_cannot_be_told(self):
        counting = "{{ messages | length }}" + CHATML
        save(self.folder / "counting", self.tokenizer, counting)
        message = self.refused_with("counting", "chat.jsonl")
        for part in ("chat.jsonl:1: ", "in another way when more follow", "--no-mask-prompt"):
            self.assertIn(part, message)
        self.tokenize("chat.jsonl", "--no-mask-prompt", model="counting")

    def test_a_token_beyond_the_models_vocabulary(self):
        tokens = self.tokenizer.get_vocab_size()
        self.tokenizer.add_tokens(["<new>"])
        save(self.folder / "old", self.tokenizer, vocab=tokens)
        self.write("b.jsonl", {"text": "fine"}, {"text": "a <new> one"})
        code, _, err = self.run_here("b.jsonl", "--model", "old", "-o", "out")
        self.assertEqual(code, 2)
        self.assertIn(f"b.jsonl:2: token {tokens} ('<new>') is beyond the model's vocabulary of "
                      f"{tokens}", err)
        self.assertEqual([name for name in os.listdir() if "out" in name], [])

    def test_a_source_that_changes_while_it_is_read(self):
        real = Format.document

        def edits(self, place, record):
            with open("a.jsonl", "a") as file:
                file.write("\n")
            return real(self, place, record)
        with mock.patch.object(Format, "document", edits):
            self.assertIn("a.jsonl was changed while it was read", self.refused(4, "a.jsonl"))


class Processes(Case):
    def setUp(self):
        super().setUp()
        self.options = ("--model", "model", "-o", "out")

    def test_any_number_of_workers_gives_the_same_bytes(self):
        self.write("a.jsonl", *(
            chat(("user", "Hello " * (k % 50)), ("assistant", f"answer {k}")) for k in range(3000)))
        sets = []
        for workers in (1, 3):
            process = self.start("a.jsonl", *self.options, "--workers", workers, "--force")
            self.assertEqual(process.communicate()[1], "")
            sets.append([pathlib.Path("out" + part).read_bytes()
                         for part in (".bin", ".documents", ".mask", ".json")])
        self.assertEqual(sets[0], sets[1])

    def test_a_disk_that_is_full(self):
        self.write("a.jsonl", *({"text": f"{k} " * 1000} for k in range(300)))

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        before = sorted(os.listdir())
        process = self.start("a.jsonl", *self.options, preexec_fn=limit)
        out, err = process.communicate()
        self.assertEqual((process.returncode, out), (4, ""))
        self.assertIn("sluice: cannot write out.bin and its companions: File too large", err)
        self.assertNotIn("Traceback", err)
        self.assertEqual(sorted(os.listdir()), before)

    def stopped_by(self, number):
        """What stands in the folder after a run, in the middle of its work, is sent a signal."""
        endless = "{% if messages[0].content == 'endless' %}{% for a in range(99999) %}" \
            "{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
        save(self.folder / "slow", self.tokenizer, endless + CHATML)
        chats = [CHAT] * 5000 + [chat(("user", "endless"), ("assistant", "fine"))]
        self.write("a.jsonl", *chats)
        process = self.start("a.jsonl", "--model", "slow", "-o", "out")
        while process.poll() is None and not list(self.folder.glob(".out.partial-*/out.bin")):
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate()
        self.assertNotIn("Traceback", err)
        return process.returncode, sorted(os.listdir())

    def test_a_run_that_is_stopped_leaves_nothing(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                self.assertEqual(self.stopped_by(number),
                                 (128 + number, ["a.jsonl", "model", "slow"]))
                shutil.rmtree("slow")

    def test_a_set_that_is_stopped_as_it_is_begun_leaves_nothing(self):
        make = tempfile.mkdtemp
        came, arrives = os.pipe()
        os.set_blocking(arrives, False)
        self.addCleanup(signal.set_wakeup_fd, signal.set_wakeup_fd(arrives))

        def stopped_in(*arguments, **options):
            folder = make(*arguments, **options)
            os.kill(os.getpid(), signal.SIGTERM)
            os.read(came, 1)  # some thread has taken it
            return folder
        before = signal.signal(signal.SIGTERM, failures.stopped)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        names = sorted(os.listdir())
        with mock.patch("tempfile.mkdtemp", stopped_in), self.assertRaises(SystemExit):
            with Writer(Places("out"), np.uint16, masked=True):
                self.fail("the block was begun")
        self.assertEqual(sorted(os.listdir()), names)

    def test_a_run_that_is_killed_leaves_no_set_and_is_in_nobodys_way(self):
        code, names = self.stopped_by(signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        self.assertEqual([name for name in names if name.startswith("out")], [])
        self.tokenize(self.write("b.jsonl", {"text": "fine"}))
