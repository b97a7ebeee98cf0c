"""Whole calls of scripts/gpu_check.sh, with scripts of the shell as the programs and the card."""
import json
import unittest

import scripts

# What a test program does of GTEST_OUTPUT=json:FILE.
REPORT = """
echo "shard $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS"
cat >"${GTEST_OUTPUT#json:}" <<END
{"testsuites": [{"testsuite": [
  {"classname": "A", "name": "Runs", "status": "RUN", "result": "COMPLETED"},
  {"classname": "A", "name": "Skips", "status": "RUN", "result": "SKIPPED"},
  {"classname": "A", "name": "Disabled", "status": "NOTRUN", "result": "SUPPRESSED"}]}]}
END
"""
# compute-sanitizer [OPTION VALUE]... --log-file FILE PROGRAM ARGUMENTS...
SANITIZER = """
while [ "$1" != --log-file ]; do
  if [ "$1" = --error-exitcode ]; then found=$2; fi
  shift
done
log=$2
shift 2
"$@" || exit
echo "========= %s" >"$log"
exit %s
"""


class Check(scripts.Case):
    def setUp(self):
        super().setUp()
        self.program("nvidia-smi", "echo 'NVIDIA Something 80GB, 81559, 580.1'", "path")
        self.program("sluice", 'echo "$@" >>"$0.asked"; test -e "$2"')
        self.program("compute-sanitizer", SANITIZER % ("ERROR SUMMARY: 0 errors", "0"), "path")
        self.program("gpu_test", REPORT)
        self.program("other_test", REPORT)

    def check(self, *arguments):
        code, said = self.call("gpu_check.sh", "--programs", str(self.folder / "build"), *arguments)
        path = self.out / "check.json"
        return code, said, json.loads(path.read_text()) if path.exists() else None

    def statuses(self, found):
        return {part["part"]: part["status"] for part in found["parts"]}

    def part(self, found, name):
        return next(part for part in found["parts"] if part["part"] == name)

    def test_all_is_well(self):
        code, said, found = self.check()
        self.assertEqual(code, 0, said)
        self.assertEqual(found["card"], "NVIDIA Something 80GB")
        self.assertEqual(list(self.statuses(found)), [
            "gpu_test", "sanitizer.memcheck.hbm", "sanitizer.memcheck.dram", "other_test",
            "sanitizer.racecheck.hbm", "sanitizer.racecheck.dram"])
        self.assertEqual(set(self.statuses(found).values()), {"ok"})
        self.assertIn("tests: 2 passed, 2 skipped\nparts: 6 ok\n", said)
        self.assertTrue(said.endswith((self.out / "check.txt").read_text()))
        gpu_test = found["parts"][0]
        self.assertEqual((gpu_test["code"], gpu_test["tests"]), (0, 1))
        self.assertEqual(gpu_test["tests_skipped"], ["A.Skips"])
        asked = (self.folder / "build" / "sluice.asked").read_text()
        self.assertEqual(asked.count("tiers.gpu.device=cuda"), 4)
        self.assertIn("train.steps=3", asked)
        self.assertEqual(self.check()[0], 0)
        self.assertEqual((self.folder / "build" / "sluice.asked").read_text(), asked)

    def test_the_crown_test_is_taken_in_shards(self):
        self.program("crown_test", REPORT)
        found = self.check("--parts", "crown*")[2]
        crown = [part for part in found["parts"] if part["part"].startswith("crown")]
        self.assertEqual(len(crown), 6)
        self.assertEqual(crown[2]["part"], "crown_test.3-of-6")
        self.assertIn("shard 2 of 6\n", (self.out / "logs" / "crown_test.3-of-6.log").read_text())

    def test_what_fails_is_named_with_code_and_last_lines(self):
        self.program("other_test", "echo 'the reason'; exit 9")
        code, said, found = self.check()
        self.assertEqual(code, 1)
        part = self.part(found, "other_test")
        self.assertEqual((part["status"], part["code"], part["tail"]),
                         ("failed", 9, ["the reason"]))
        self.assertRegex(said, "failed .* other_test +exit code 9: the reason; .*/other_test.log")

    def test_a_program_that_ran_no_test_has_not_passed(self):
        self.program("gpu_test", "exit 0")
        self.program("other_test", REPORT.replace("RUN", "NOTRUN"))
        code, _, found = self.check()
        self.assertEqual(code, 1)
        self.assertEqual((self.part(found, "gpu_test")["status"],
                          self.part(found, "other_test")["status"]), ("failed", "failed"))

    def test_the_report_of_an_earlier_call_is_not_taken_for_one(self):
        self.program("gpu_test", REPORT + "exit 9")
        self.assertEqual(self.check("--parts", "gpu_test")[0], 1)
        self.program("gpu_test", "exit 0")
        self.assertEqual(self.check("--parts", "gpu_test")[0], 1)

    def test_a_sanitizer_that_sums_up_nothing_has_not_looked(self):
        self.program("compute-sanitizer", SANITIZER % ("said nothing", "0"), "path")
        code, said, _ = self.check("--parts", "sanitizer.memcheck.hbm")
        self.assertEqual(code, 1)
        self.assertIn("has summed up nothing", said)

    def test_what_the_sanitizer_finds_fails(self):
        self.program("compute-sanitizer", SANITIZER % ("ERROR SUMMARY: 3 errors", "$found"), "path")
        code, said, found = self.check("--parts", "sanitizer.memcheck.hbm")
        self.assertEqual(code, 1, said)
        self.assertEqual(found["parts"][1]["tail"], ["========= ERROR SUMMARY: 3 errors"])

    def test_a_run_that_fails_under_the_sanitizer_fails(self):
        self.program("sluice", "echo 'error: it broke'; exit 6")
        found = self.check("--parts", "sanitizer.memcheck.hbm")[2]
        self.assertEqual(found["parts"][1]["tail"][-1], "error: it broke")

    def test_where_the_sanitizer_cannot_work_it_is_skipped_and_counted_so(self):
        self.program("compute-sanitizer", SANITIZER % ("Device not supported", "1"), "path")
        code, said, _ = self.check()
        self.assertEqual(code, 0, said)
        self.assertIn("compute-sanitizer cannot work here", said)
        self.assertIn("parts: 2 ok, 4 skipped\n", said)

    def test_parts_are_left_where_there_is_no_time(self):
        code, said, found = self.check("--most", "20")
        self.assertEqual(code, 75)
        self.assertIn("parts: 1 ok, 5 left\n", said)
        self.assertEqual(self.part(found, "other_test"), {"part": "other_test", "status": "left"})

    def test_without_a_card_it_says_so_at_once(self):
        self.program("nvidia-smi", "echo 'no devices were found'; exit 6", "path")
        code, said, found = self.check()
        self.assertEqual((code, found), (3, None))
        self.assertEqual(said, "gpu_check.sh: no GPU: nvidia-smi says: no devices were found\n")

    def test_without_programs_it_says_so(self):
        code, said = self.call("gpu_check.sh", "--programs", str(self.folder / "nothing"))
        self.assertEqual(code, 3)
        self.assertIn("nothing is no folder", said)

    def test_results_of_another_card_are_not_added_to(self):
        self.check("--parts", "gpu_test")
        self.program("nvidia-smi", "echo 'Another, 143771, 580.1'", "path")
        code, said, _ = self.check()
        self.assertEqual(code, 2)
        self.assertIn("choose another folder", said)

    def test_it_lists_what_there_is_to_do(self):
        self.check("--parts", "gpu_test")
        code, said, _ = self.check("--list", "--parts", "*_test")
        self.assertEqual((code, said), (0, "ok       gpu_test\nleft     other_test\n"))


if __name__ == "__main__":
    unittest.main()
