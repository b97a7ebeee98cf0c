"""Work in parts: what is done again and what is not, in which order, within which time."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest
from unittest import mock

import scripts
import parts


class PartsOfAFolder(scripts.Case):
    def setUp(self):
        super().setUp()
        self.ran = []
        self.ends = {}  # name -> what its next run raises

    def parts(self, *names, need=0):
        def run(name):
            def work(limit):
                self.ran.append((name, limit))
                if name in self.ends:
                    raise self.ends.pop(name)
                return {"answer": name}
            return parts.Part(name, work, need)
        return parts.Parts(self.out, [run(name) for name in names])

    def work(self, *names, most=100, need=0):
        """(exit code, the names of the parts that ran)"""
        self.ran.clear()
        with contextlib.redirect_stdout(io.StringIO()):
            code = self.parts(*names, need=need).work(most)
        return code, [name for name, _ in self.ran]

    def test_what_is_done_is_not_done_again(self):
        self.ends["b"] = parts.Ended("skipped", "not here")
        self.ends["c"] = parts.Ended("unfit", "no room", code=3)
        self.assertEqual(self.work("a", "b", "c"), (parts.OK, ["a", "b", "c"]))
        self.assertEqual(self.work("a", "b", "c", "d"), (parts.OK, ["d"]))
        result = self.parts("a").result("a")
        self.assertEqual((result["status"], result["answer"]), ("ok", "a"))
        self.assertEqual(self.parts("c").result("c")["code"], 3)
        self.assertFalse(list(self.out.rglob("*.partial")))

    def test_what_failed_is_tried_again_once_nothing_else_is_left(self):
        self.ends["a"] = parts.Ended("failed", "it broke")
        self.assertEqual(self.work("a", "b"), (parts.FAILED, ["a", "b"]))
        self.assertEqual(self.work("a", "b", "c"), (parts.FAILED, ["c"]))
        self.assertEqual(self.work("a", "b", "c"), (parts.OK, ["a"]))

    def test_a_part_that_breaks_keeps_no_other_from_its_turn(self):
        self.ends["a"] = ValueError("a mistake of ours")
        self.assertEqual(self.work("a", "b"), (parts.FAILED, ["a", "b"]))
        result = self.parts("a").result("a")
        self.assertEqual(result["why"], "ValueError('a mistake of ours')")
        self.assertIn("raise self.ends", "".join(result["tail"]))

    def test_no_part_is_begun_without_the_time_it_needs_but_the_first(self):
        self.assertEqual(self.work("a", "b", most=100, need=200), (parts.LEFT, ["a"]))
        self.assertEqual(self.work("a", "b", most=100, need=200), (parts.OK, ["b"]))

    def test_a_part_that_has_its_time_is_begun_behind_one_that_has_not(self):
        every = [part for name, need in (("a", 0), ("b", 200), ("c", 0))
                 for part in self.parts(name, need=need).parts]
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(parts.Parts(self.out, every).work(100), parts.LEFT)
            self.assertEqual([name for name, _ in self.ran], ["a", "c"])
            self.assertEqual(parts.Parts(self.out, every).work(100), parts.OK)
        self.assertEqual([name for name, _ in self.ran], ["a", "c", "b"])

    def test_no_part_may_take_longer_than_one_may(self):
        self.work("a", most=10000)
        self.assertEqual(self.ran, [("a", parts.LONGEST)])

    def test_what_a_call_cut_short_comes_first_in_the_next_and_may_fail_then(self):
        self.ends["b"] = parts.OutOfTime("late")
        self.assertEqual(self.work("a", "b", "c"), (parts.LEFT, ["a", "b", "c"]))
        self.assertEqual(self.parts("b").status("b"), "cut")
        self.ends["b"] = parts.OutOfTime("late again")
        self.assertEqual(self.work("a", "d", "b", "c"), (parts.FAILED, ["b", "d"]))
        self.assertEqual(self.parts("b").result("b")["why"], "late again")

    def test_patterns_choose(self):
        chosen = self.parts("rate.8b.dram.4", "rate.8b.hbm.4", "peak").chosen(["*.hbm.*", "pe*"])
        self.assertEqual([part.name for part in chosen.parts], ["rate.8b.hbm.4", "peak"])


class Commands(scripts.Case):
    def run_it(self, text, limit=60.0, **more):
        self.log = self.folder / "log"
        return parts.run(["sh", "-c", text], self.log, limit, **more)

    def alive(self, pid):
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return False
        return state != "Z"

    def test_its_exit_code_and_its_output(self):
        self.assertEqual(self.run_it("echo said; echo $WORD >&2; exit 7", env={"WORD": "heard"}), 7)
        self.assertEqual(parts.last_lines(self.log), ["said", "heard"])

    def test_at_the_limit_all_that_it_started_ends(self):
        with self.assertRaisesRegex(parts.OutOfTime, "did not end within 1 s"):
            self.run_it("sleep 1000 & echo $!; wait", limit=1)
        self.assertFalse(self.alive(int(parts.last_lines(self.log)[0])))

    def test_what_does_not_stop_when_asked_is_made_to(self):
        with self.assertRaises(parts.OutOfTime):
            self.run_it("trap '' TERM; echo $$; while :; do sleep 1; done", limit=0.5, grace=0.5)
        self.assertFalse(self.alive(int(parts.last_lines(self.log)[0])))

    def test_it_is_stopped_once_there_is_enough(self):
        enough = self.folder / "enough"
        self.assertEqual(self.run_it(f"touch {enough}; exec sleep 1000", watch=enough.exists), 0)

    def test_who_ends_us_ends_it(self):
        code = ("import box, parts, pathlib; box.main(lambda: parts.run("
                "['sh', '-c', 'echo $$; exec sleep 1000'], pathlib.Path('log'), 100))")
        path = os.environ | {"PYTHONPATH": str(scripts.SCRIPTS / "gpu"),
                             "PYTHONDONTWRITEBYTECODE": "1"}
        log = self.folder / "log"
        with subprocess.Popen([sys.executable, "-c", code], cwd=self.folder, env=path) as caller:
            while not log.exists() or not log.read_text().endswith("\n"):
                time.sleep(0.05)
            caller.terminate()
        self.assertEqual(caller.returncode, 128 + 15)
        self.assertFalse(self.alive(int(log.read_text())))


class Results(scripts.Case):
    def test_a_result_that_cannot_be_written_leaves_the_old_one(self):
        path = self.folder / "result.json"
        parts.store(path, {"a": 1})
        with mock.patch.object(pathlib.Path, "replace", side_effect=OSError):
            self.assertRaises(OSError, parts.store, path, {"a": 2})
        self.assertEqual(json.loads(path.read_text()), {"a": 1})


if __name__ == "__main__":
    unittest.main()
