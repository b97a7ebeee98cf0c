"""Token sets of every kind of input, with masks held against what a person would mark."""
import hashlib
import json
import os
import pathlib
from unittest import mock

import pyarrow
import pyarrow.parquet
from tokenizers import processors

from tools import CHATML, END, EOS, MARKED, START, Case, TokenSet, byte_level, chat, save
from records import read

TWO_TURNS = chat(("system", "Be kind."), ("user", "Hello"), ("assistant", "I am fine."),
                 ("user", "the answer?"), ("assistant", "four"))
SHOWN = (f"{START}system\nBe kind.{END}\n{START}user\nHello{END}\n"
         f"{START}assistant\n[I am fine.{END}]\n{START}user\nthe answer?{END}\n"
         f"{START}assistant\n[four{END}]\n")
# The last answer begins with an empty thought, as Qwen3 writes it; the one before it does not.
THOUGHTFUL = """{% for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and loop.last %}{{- '<think></think>' }}{% endif %}
{{- message.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""


class Chats(Case):
    def test_of_a_chat_the_assistants_turns_count(self):
        self.tokenize(self.write("a.jsonl", TWO_TURNS))
        self.assertEqual(TokenSet().shown(self.tokenizer), [SHOWN])

    def test_a_template_that_marks_its_answers_gives_the_same(self):
        save(self.folder / "marked", self.tokenizer, MARKED)
        self.tokenize(self.write("a.jsonl", TWO_TURNS), model="marked")
        self.assertEqual(TokenSet().shown(self.tokenizer), [SHOWN])

    def test_an_answer_that_is_written_with_more_where_it_is_the_last(self):
        save(self.folder / "thoughtful", self.tokenizer, THOUGHTFUL)
        self.tokenize(self.write("a.jsonl", TWO_TURNS), model="thoughtful")
        self.assertEqual(TokenSet().shown(self.tokenizer),
                         [SHOWN.replace("[four", "[<think></think>four")])

    def test_a_template_without_end_of_turn_counts_what_ends_the_turn(self):
        plain = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}" \
                "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
        save(self.folder / "plain", self.tokenizer, plain)
        self.tokenize(self.write("a.jsonl", chat(("user", "Hello"), ("assistant", "fine"))),
                      model="plain")
        self.assertEqual(TokenSet().shown(self.tokenizer), ["user: Hello\nassistant:[ fine\n]"])

    def test_sharegpt(self):
        record = chat(("human", "Hello"), ("gpt", "fine"), key="conversations",
                      names=("from", "value"))
        self.tokenize(self.write("a.jsonl", record))
        self.assertEqual(TokenSet().shown(self.tokenizer), [
            f"{START}user\nHello{END}\n{START}assistant\n[fine{END}]\n"])

    def test_without_masks_everything_counts_and_no_mask_is_written(self):
        self.tokenize(self.write("a.jsonl", TWO_TURNS), "--no-mask-prompt")
        tokens = TokenSet()
        self.assertFalse(tokens.manifest["masked"])
        self.assertFalse(os.path.exists("out.mask"))
        self.assertEqual(tokens.shown(self.tokenizer), [
            "[" + SHOWN.replace("[", "").replace("]", "") + "]"])

    def test_a_chat_ends_as_its_template_says_and_with_eos_where_asked(self):
        name = self.write("a.jsonl", TWO_TURNS)
        save(self.folder / "bos", byte_level(bos=True))
        self.tokenize(name, "--eos", "yes", model="bos")
        self.assertEqual(TokenSet().shown(self.tokenizer), [SHOWN + f"[{EOS}]"])


class Completions(Case):
    def shown(self, *records, **options):
        self.tokenize(self.write("a.jsonl", *records), **options)
        return TokenSet().shown(self.tokenizer)

    def test_the_completion_and_eos_count(self):
        self.assertEqual(self.shown({"prompt": "how are you?", "completion": " I am fine."}),
                         [f"how are you?[ I am fine.{EOS}]"])

    def test_a_token_over_the_boundary_counts(self):
        self.assertEqual(self.shown({"prompt": "the answer is ", "completion": "four"}),
                         [f"the answer is[ four{EOS}]"])

    def test_spaces_belong_to_the_side_that_they_stand_on(self):
        self.assertEqual(self.shown({"prompt": "you?   ", "completion": "\tfine  "}),
                         [f"you?   [\tfine  {EOS}]"])

    def test_characters_of_several_tokens(self):
        self.assertEqual(self.shown({"prompt": "é😀", "completion": "😀é"}), [f"é😀[😀é{EOS}]"])

    def test_an_eos_that_is_there_is_not_doubled(self):
        self.assertEqual(self.shown({"prompt": "Hello", "completion": f" there{EOS}"}),
                         [f"Hello[ there{EOS}]"])

    def test_what_the_tokenizer_adds_before_does_not_count(self):
        save(self.folder / "bos", byte_level(bos=True))
        self.assertEqual(self.shown({"prompt": "", "completion": "Hello"}, model="bos"),
                         [f"{START}[Hello{EOS}]"])

    def test_an_eos_that_the_tokenizer_adds_counts(self):
        self.tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS}", special_tokens=[(EOS, self.tokenizer.token_to_id(EOS))])
        save(self.folder / "ending", self.tokenizer)
        self.assertEqual(self.shown({"prompt": "Hello", "completion": " there"}, model="ending"),
                         [f"Hello[ there{EOS}]"])

    def test_the_first_token_is_no_target(self):
        self.assertEqual(self.shown({"prompt": "", "completion": "Hello there"}),
                         [f"[Hello there{EOS}]"])
        self.assertEqual(TokenSet().manifest["targets"], len(TokenSet().documents[0]) - 1)

    def test_messages_as_prompt_and_completion(self):
        turns = TWO_TURNS["messages"]
        shown = SHOWN.replace("[I am fine.<|im_end|>]", "I am fine.<|im_end|>")
        record = {"prompt": turns[:4], "completion": turns[4:]}
        self.assertEqual(self.shown(record), [shown])
        save(self.folder / "marked", self.tokenizer, MARKED)
        self.tokenize("a.jsonl", "--force", model="marked")
        self.assertEqual(TokenSet().shown(self.tokenizer), [shown])

    def test_alpaca(self):
        self.assertEqual(
            self.shown({"instruction": "Add.", "input": "2+2", "output": "four"},
                       {"instruction": "Hello", "input": "", "output": "fine"},
                       {"instruction": "Hello", "output": "fine"}),
            [f"### Instruction:\nAdd.\n\n### Input:\n2+2\n\n### Response:\n[four{EOS}]"]
            + [f"### Instruction:\nHello\n\n### Response:\n[fine{EOS}]"] * 2)


class Texts(Case):
    def test_a_file_is_a_document_and_all_of_it_counts(self):
        pathlib.Path("a.txt").write_text("Hello there\n")
        pathlib.Path("b.md").write_text("four")
        self.tokenize("a.txt", "b.md")
        self.assertEqual(TokenSet().shown(self.tokenizer),
                         [f"[Hello there\n{EOS}]", f"[four{EOS}]"])

    def test_without_eos(self):
        pathlib.Path("a.txt").write_text("Hello there")
        self.tokenize("a.txt", "--eos", "no")
        self.assertEqual(TokenSet().shown(self.tokenizer), ["[Hello there]"])

    def test_what_the_tokenizer_adds_stands_before_a_text(self):
        pathlib.Path("a.txt").write_text("Hello")
        save(self.folder / "bos", byte_level(bos=True))
        self.tokenize("a.txt", model="bos")
        self.assertEqual(TokenSet().shown(self.tokenizer), [f"[{START}Hello{EOS}]"])

    def test_a_tokenizer_that_cuts_and_pads_does_neither(self):
        self.tokenizer.enable_truncation(max_length=2)
        self.tokenizer.enable_padding(length=40, pad_token=EOS)
        save(self.folder / "cuts", self.tokenizer)
        pathlib.Path("a.txt").write_text("Hello there, how are you?")
        self.tokenize("a.txt", model="cuts")
        self.assertEqual(TokenSet().shown(self.tokenizer), [f"[Hello there, how are you?{EOS}]"])

    def test_empty_documents_are_skipped_and_counted(self):
        out = self.tokenize(self.write("a.jsonl", {"text": ""}, {"text": "four"}, {"text": " \n"}))
        self.assertEqual(TokenSet().shown(self.tokenizer), [f"[four{EOS}]"])
        self.assertIn("skipped: 2 empty documents (the first: a.jsonl:1)", out)

    def test_a_byte_order_mark_and_blank_lines_are_no_text(self):
        pathlib.Path("a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "four"}\r\n\n{"text": "fine"}')
        pathlib.Path("b.txt").write_bytes(b"\xef\xbb\xbfHello")
        self.tokenize("a.jsonl", "b.txt")
        self.assertEqual(TokenSet().shown(self.tokenizer),
                         [f"[four{EOS}]", f"[fine{EOS}]", f"[Hello{EOS}]"])


class Files(Case):
    def test_an_array_gives_what_lines_give(self):
        records = [{"text": f"é {{[\"{k}\\ " + "x" * (k * 997 % 5000)} for k in range(900)]
        self.write("a.jsonl", *records)
        pathlib.Path("b.json").write_text(json.dumps(records, indent=1, ensure_ascii=False))
        self.tokenize("a.jsonl")
        lines = TokenSet()
        self.tokenize("b.json", "--force")
        self.assertGreater(os.path.getsize("b.json"), 2 << 20)  # of several reads
        self.assertEqual(TokenSet().documents, lines.documents)

    def test_an_array_that_is_read_in_pieces_of_any_size(self):
        records = [{"text": "é\n😀", "a": None, "b": [True, -1.5e-7, {}]}, {"text": "\\"}]
        pathlib.Path("a.json").write_text(json.dumps(records, indent=1))
        for piece in range(1, 40):
            with mock.patch("records.PIECE", piece):
                self.assertEqual([(str(place), record) for place, record in read("a.json")],
                                 list(zip(("a.json:2", "a.json:11"), records)))

    def test_a_json_file_of_lines(self):
        self.tokenize(self.write("a.json", {"text": "four"}, {"text": "fine"}))
        self.assertEqual(len(TokenSet().documents), 2)

    def test_parquet(self):
        records = [TWO_TURNS | {"id": k} for k in range(600)]
        table = pyarrow.Table.from_pylist(records)
        pyarrow.parquet.write_table(table, "a.parquet", row_group_size=256)
        self.tokenize("a.parquet")
        self.assertEqual(TokenSet().shown(self.tokenizer), [SHOWN] * 600)

    def test_parquet_of_two_columns(self):
        table = pyarrow.table({"n": [1], "prompt": ["Hello"], "completion": [" there"]})
        pyarrow.parquet.write_table(table, "a.parquet")
        self.tokenize("a.parquet")
        self.assertEqual(TokenSet().shown(self.tokenizer), [f"Hello[ there{EOS}]"])

    def test_several_files_in_their_order(self):
        names = [self.write(f"{k}.jsonl", {"text": str(k)}) for k in (2, 0, 1)]
        self.tokenize(*names)
        self.assertEqual(TokenSet().shown(self.tokenizer), [f"[{k}{EOS}]" for k in (2, 0, 1)])

    def test_the_format_that_is_asked_for(self):
        record = {"text": "fine"} | TWO_TURNS
        self.tokenize(self.write("a.jsonl", record), "--format", "text")
        self.assertEqual(TokenSet().manifest["format"], "text")
        self.tokenize("a.jsonl", "--force")
        self.assertEqual(TokenSet().manifest["format"], "chat")


class Manifests(Case):
    def test_it_says_what_the_set_is(self):
        (self.folder / "sets").mkdir()
        name = self.write("a.jsonl", TWO_TURNS)
        whole = str(self.folder / self.write("b.jsonl", TWO_TURNS))
        code, out, err = self.run_here(name, whole, "--model", "model", "-o", "sets/out.bin")
        self.assertEqual((code, err), (0, ""))
        tokens = TokenSet("sets/out")
        self.assertEqual(sorted(os.listdir("sets")),
                         ["out.bin", "out.documents", "out.json", "out.mask"])
        digest = hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest()
        listing = "".join(
            f"{hashlib.sha256(pathlib.Path('model', part).read_bytes()).hexdigest()}  {part}\n"
            for part in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"))
        size = os.path.getsize(name)
        self.assertEqual(tokens.manifest, {
            "sluice_tokens": 1, "dtype": "uint16", "tokens": sum(map(len, tokens.documents)),
            "documents": 2, "targets": sum(map(sum, tokens.masks)), "masked": True,
            "vocab": self.tokenizer.get_vocab_size(), "format": "chat", "tokenizer": "../model",
            "tokenizer_sha256": hashlib.sha256(listing.encode()).hexdigest(),
            "sources": [{"path": path, "bytes": size, "modified_ns": os.stat(file).st_mtime_ns,
                         "sha256": digest}
                        for path, file in (("../a.jsonl", name), (whole, whole))]})
        self.assertIn("data: {train: sets/out.bin}", out)
        self.assertIn(f"2 documents, {tokens.manifest['tokens']} tokens (uint16), "
                      f"{tokens.manifest['targets']} targets", out)
        self.assertIn(f"longest document {len(tokens.documents[0])} tokens", out)

    def test_ids_that_need_more_than_two_bytes(self):
        self.tokenizer.add_tokens([f"<{k}>" for k in range(65600)])
        save(self.folder / "many", self.tokenizer)
        self.tokenize(self.write("a.jsonl", {"text": "fine<65599>"}), model="many")
        tokens = TokenSet()
        self.assertEqual(tokens.manifest["dtype"], "uint32")
        self.assertIn(self.tokenizer.token_to_id("<65599>"), tokens.documents[0])
        self.assertIn("give --dtype uint32", self.refused(
            2, "a.jsonl", "--force", "--dtype", "uint16", model="many"))

    def test_uint32_where_asked(self):
        self.tokenize(self.write("a.jsonl", {"text": "fine"}), "--dtype", "uint32")
        self.assertEqual(TokenSet().shown(self.tokenizer), [f"[fine{EOS}]"])

    def test_force_replaces_a_masked_set_by_one_without(self):
        self.tokenize(self.write("a.jsonl", TWO_TURNS))
        self.tokenize(self.write("b.jsonl", {"text": "fine"}), "--force")
        self.assertFalse(os.path.exists("out.mask"))
        self.assertEqual(TokenSet().shown(self.tokenizer), [f"[fine{EOS}]"])

    def test_a_tokenizer_elsewhere_and_a_model_with_fewer_ids_than_it(self):
        tokens = self.tokenizer.get_vocab_size()
        save(self.folder / "small", self.tokenizer, vocab=tokens - 1)
        (self.folder / "small" / "tokenizer.json").write_text("{")  # not looked at
        name = self.write("a.jsonl", {"text": "x"})
        code, _, err = self.run_here(name, "--model", "small", "--tokenizer", "model", "-o", "out")
        self.assertEqual(code, 0)
        self.assertIn(f"ids go up to {tokens - 1}, and the model's vocabulary has {tokens - 1};",
                      err)
        self.assertEqual(TokenSet().manifest["tokenizer"], "model")

    def test_a_template_with_the_day_in_it_is_named(self):
        save(self.folder / "today", self.tokenizer, "{{ strftime_now('%d') }}" + CHATML)
        name = self.write("a.jsonl", TWO_TURNS)
        code, _, err = self.run_here(name, "--model", "today", "-o", "out")
        self.assertEqual(code, 0)
        self.assertIn("the day of today", err)
