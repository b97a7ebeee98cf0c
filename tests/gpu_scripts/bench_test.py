"""Whole calls of scripts/gpu_bench.sh with a tiny model, on the product as it is built here."""
import json
import sys
import unittest

import scripts

BUILD = ""  # the folder of the product
SETTINGS = ["tiers.gpu.limit=1GiB", "tiers.gpu.unified=false", "tiers.cpu.limit=1GiB",
            "tiers.nvme.allow_ram_path=true"]


class Bench(scripts.Case):
    def bench(self, *patterns, settings=()):
        code, said = self.call("gpu_bench.sh", "--shapes", "tiny", "--card-gib", "4", "--programs",
                               BUILD, "--set", *SETTINGS, *settings, "--parts", *patterns)
        found = json.loads((self.out / "bench.json").read_text())
        self.parts = {part["part"]: part for part in found["parts"]}
        return code, said, found["table"]["shapes"].get("tiny")

    def test_rates_of_all_placements(self):
        leftover = self.out / "gpu-run" / "run" / "a file of a call that was killed"
        leftover.mkdir(parents=True)
        code, said, shape = self.bench("fit.*", "rate.*")
        self.assertEqual(code, 0, said)
        for placement, tokens in (("hbm", [256, 1024]), ("dram", [128, 256, 512, 1024]),
                                  ("nvme", [256])):
            points = shape[placement]
            self.assertEqual([point["tokens_per_step"] for point in points], tokens)
            for point in points:
                self.assertEqual((point["layers"], point["of"]), (4, 4))
                self.assertGreaterEqual(point["steps"], 8)
                flops = point["tflops"] * 1e12 * point["step_seconds"]["median"]
                self.assertAlmostEqual(flops / (point["flops_per_token"]
                                                * point["tokens_per_step"]), 1)
                self.assertEqual(point["nvme_bytes_per_step"] > 0, placement == "nvme")
        self.assertIn("of_in_hbm", shape["dram"][1])
        self.assertEqual(len(shape["t50"]), 1)
        self.assertIn("\nT50: ", said)
        self.assertFalse((self.out / "gpu-run").exists())
        self.assertTrue((self.out / "logs" / "rate.tiny.nvme.256.jsonl").exists())
        took = [part.get("took") for part in self.parts.values()]
        self.assertEqual(self.bench("fit.*", "rate.*")[0], 0)
        self.assertEqual([part.get("took") for part in self.parts.values()], took)

    def test_what_has_no_room_says_what_it_lacks_and_is_no_failure(self):
        code, said, shape = self.bench("*.tiny.dram*", settings=["tiers.cpu.limit=100KiB"])
        self.assertEqual(code, 0, said)
        self.assertIsNone(shape)
        self.assertEqual(self.parts["fit.tiny.dram"]["status"], "unfit")
        self.assertIn("parts: 5 unfit\n", said)
        self.assertIn("the cpu tier is too small", self.parts["fit.tiny.dram"]["why"])
        self.assertEqual(self.parts["rate.tiny.dram.128"]["status"], "unfit")

    def test_as_many_layers_as_there_is_room_for(self):
        code, said, shape = self.bench("fit.tiny.dram", "rate.tiny.dram.128",
                                       settings=["tiers.cpu.limit=1500KiB"])
        self.assertEqual(code, 0, said)
        self.assertIn(shape["dram"][0]["layers"], (1, 2, 3))
        self.assertEqual(shape["dram"][0]["layers"], self.parts["fit.tiny.dram"]["layers"])

    def test_a_setting_that_is_refused_fails(self):
        code, said, _ = self.bench("fit.tiny.dram", settings=["train.stops=1"])
        self.assertEqual(code, 1, said)
        self.assertEqual(self.parts["fit.tiny.dram"]["status"], "failed")
        self.assertIn("train.stops", self.parts["fit.tiny.dram"]["why"])

    def test_a_machine_that_lacks_something_is_not_taken_for_a_small_one(self):
        code, said, _ = self.bench("fit.tiny.dram", settings=["tiers.gpu.device=cuda"])
        self.assertEqual(code, 1, said)
        self.assertEqual(self.parts["fit.tiny.dram"]["status"], "failed")
        self.assertIn("exit code 3: error: tiers.gpu.device",
                      self.parts["fit.tiny.dram"]["why"])

    def test_a_rate_needs_to_know_what_fits(self):
        code, said, _ = self.bench("rate.tiny.dram.128")
        self.assertEqual(code, 1, said)
        self.assertIn("no fit.tiny.dram to go by", self.parts["rate.tiny.dram.128"]["why"])


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
