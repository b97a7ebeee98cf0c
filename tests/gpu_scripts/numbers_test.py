"""The arithmetic of scripts/gpu: T50 and T90, what fits where, what metrics say of a step."""
import unittest

import scripts  # noqa: F401, it finds the modules
import box
import shapes
import table
import training

GIB = shapes.GIB
DISK = 60 * GIB


def card(device, host=124):
    return box.Box("a card", device * GIB, host * GIB, DISK)


class TokensFor(unittest.TestCase):
    def test_a_step_of_fixed_cost_and_cost_per_token_is_met_exactly(self):
        def rate(tokens):
            return tokens / (2.0 + 0.001 * tokens)  # towards 1000 per second, half of it at 2000
        curve = [(tokens, rate(tokens)) for tokens in (1024, 4096, 65536)]
        self.assertEqual(shapes.tokens_for(0.5, 1000, curve), {"tokens": 2000})
        self.assertEqual(shapes.tokens_for(0.9, 1000, curve), {"tokens": 18000})

    def test_beyond_the_ends_it_says_so(self):
        curve = [(1024, 600.0), (4096, 800.0)]
        self.assertEqual(shapes.tokens_for(0.5, 1000, curve), {"at_most": 1024})
        self.assertEqual(shapes.tokens_for(0.8, 1000, curve), {"tokens": 4096})
        self.assertEqual(shapes.tokens_for(0.9, 1000, curve), {"more_than": 4096})


class Fit(unittest.TestCase):
    def layers(self, name, placement, tokens, there):
        shape = shapes.SHAPES[name]
        batch = shapes.batch_of(shape, tokens, there)
        return shapes.layers_by_count(shape, placement, batch, there)

    def test_known_models_have_their_parameters(self):
        for name, billions in (("1.5b", 1.54), ("8b", 8.03), ("14b", 14.77)):
            shape = shapes.SHAPES[name]
            self.assertAlmostEqual(shape.parameters(shape.layers) / 1e9, billions, 2)

    def test_flops_are_six_per_parameter_of_a_product_and_attention(self):
        shape = shapes.SHAPES["8b"]
        products = shape.parameters(32) - shape.vocab * shape.hidden - 65 * shape.hidden
        attention = 32 * 12 * shape.hidden * (shape.seq_len + 1) / 2
        self.assertEqual(shape.flops_per_token(32), 6 * products + attention)

    def test_the_card_chooses(self):
        for size in (78, 139):
            self.assertEqual(self.layers("1.5b", "hbm", 65536, card(size)), 28)
            self.assertEqual(self.layers("8b", "dram", 65536, card(size)), 32)
        part = self.layers("8b", "hbm", 16384, card(78))
        self.assertTrue(10 <= part <= 20, part)
        self.assertGreater(self.layers("8b", "hbm", 16384, card(139)), 1.7 * part)
        self.assertEqual(self.layers("14b", "hbm", 65536, card(2)), 0)

    def test_the_host_and_its_drive_choose(self):
        self.assertTrue(20 <= self.layers("14b", "dram", 65536, card(139)) < 48)
        self.assertEqual(self.layers("14b", "dram", 65536, card(139, host=256)), 48)
        on_drive = self.layers("14b", "nvme", 65536, card(139, host=256))
        parameters = shapes.SHAPES["14b"].parameters(on_drive)
        self.assertTrue(0.8 * DISK < 14 * parameters < DISK)

    def test_a_gradient_summed_over_micro_batches_takes_more_memory(self):
        shape, there = shapes.SHAPES["8b"], card(78, host=40)
        one, two = (shapes.layers_by_count(shape, "dram", shapes.Batch(2048, 4, micro_batches),
                                           there) for micro_batches in (1, 2))
        self.assertLess(0, two)
        self.assertLess(two, one)

    def test_small_cards_take_several_micro_batches(self):
        shape = shapes.SHAPES["8b"]
        self.assertEqual(shapes.batch_of(shape, 65536, card(78)), shapes.Batch(2048, 32, 1))
        small = shapes.batch_of(shape, 65536, card(24))
        self.assertEqual((small.micro_batches, small.tokens), (8, 65536))
        self.assertEqual(shapes.batch_of(shape, 2048, card(24)), shapes.Batch(2048, 1, 1))

    def test_the_search_finds_the_most_and_asks_little(self):
        for most in (0, 1, 2, 3, 17, 40, 79, 80):
            for guess in (0, 1, 20, 39, 80, 300):
                asked = []

                def fits(n):
                    asked.append(n)
                    return n <= most
                found = shapes.most(fits, 80, guess)
                self.assertLessEqual(found, most)
                self.assertGreaterEqual(found, most - max(1, most // 16) + 1 if most else 0)
                self.assertTrue(all(1 <= n <= 80 for n in asked))
                self.assertLessEqual(len(asked), 12)
        asked = []
        self.assertEqual(shapes.most(lambda n: asked.append(n) or True, 32, 32), 32)
        self.assertEqual(asked, [32])


def row(seconds, bound="compute"):
    lanes = {"compute": {"busy": 0.8, "idle": {"h2d": 0.2}}, "h2d": {"busy": 0.5, "idle": {}}}
    return {"seconds": seconds, "tokens": 4096, "flops": 8e12, "bound": bound, "bound_share": 0.8,
            "gpu_bytes": 7, "cpu_bytes": 8, "nvme_read_bytes": 30, "nvme_write_bytes": 10,
            "lanes": lanes}


class Steps(unittest.TestCase):
    def test_warm_up_does_not_count(self):
        rows = [row(9.0, "h2d")] * training.WARM_UP + [row(2.0), row(4.0, "d2h"), row(2.5)]
        numbers = training.numbers_of(rows)
        self.assertEqual(numbers["steps"], 3)
        self.assertEqual(numbers["step_seconds"], {"median": 2.5, "min": 2.0, "max": 4.0})
        self.assertEqual(numbers["tokens_per_s"], 4096 / 2.5)
        self.assertEqual(numbers["tflops"], 3.2)
        self.assertEqual((numbers["bound"], numbers["bound_share"]), ("compute", 0.8))
        self.assertEqual(numbers["step_over_busiest_lane"], 1.25)
        self.assertEqual(numbers["nvme_bytes_per_step"], 40)

    def test_what_a_lane_waited_for_is_a_mean_over_all_steps(self):
        waits = [{"busy": 0.5, "idle": {"h2d": 0.5}}, {"busy": 0.75, "idle": {"cpu": 0.25}}]
        self.assertEqual(training.lane_of(waits),
                         {"busy": 0.625, "idle": {"cpu": 0.125, "h2d": 0.25}})
        self.assertEqual(training.lane_of([{"busy": 1.0}]), {"busy": 1.0, "idle": {}})


def rate(placement, tokens, tokens_per_s, flops_per_token=2e9):
    return {"part": f"rate.1.5b.{placement}.{tokens}", "status": "ok", "placement": placement,
            "tokens_per_step": tokens, "tokens_per_s": tokens_per_s, "layers": 3, "of": 3,
            "step_seconds": training.spread([tokens / tokens_per_s]), "bound": "cpu",
            "bound_share": 0.9, "tflops": tokens_per_s * flops_per_token / 1e12,
            "flops_per_token": flops_per_token}


class Table(unittest.TestCase):
    # In HBM with half the work per token: the same FLOP/s are half the tokens of the whole model.
    RESULTS = [rate("hbm", 4096, 1600, 1e9), rate("hbm", 16384, 2000, 1e9),
               rate("dram", 16384, 950), rate("dram", 2048, 250), rate("dram", 4096, 450),
               {"part": "peak.matmul", "status": "ok", "flops": 8e12,
                "seconds": {"median": 2.0, "min": 1.0, "max": 3.0}},
               {"part": "rate.1.5b.dram.8192", "status": "failed", "why": "it broke"},
               {"part": "torch.1.5b.eager", "status": "left"}]

    def test_offloading_stands_beside_the_same_work_in_hbm(self):
        found = table.of(self.RESULTS)
        self.assertEqual(found["peaks"], {"matmul_tflops": 4.0})
        shape = found["shapes"]["1.5b"]
        points = {point["tokens_per_step"]: point for point in shape["dram"]}
        self.assertEqual(list(points), [2048, 4096, 16384])
        self.assertEqual(points[16384]["of_in_hbm"], 0.95)
        self.assertEqual(points[4096]["of_in_hbm"], 450 / 800)
        self.assertEqual(points[4096]["of_best_in_hbm"], 0.45)
        self.assertNotIn("of_in_hbm", points[2048])
        self.assertAlmostEqual(points[16384]["of_measured_peak"], 1.9 / 4)
        self.assertTrue(4096 < shape["t50"]["tokens"] < shape["t90"]["tokens"] < 16384)

    def test_without_a_rate_in_hbm_there_is_no_share_of_it(self):
        found = table.of([result for result in self.RESULTS if "hbm" not in result["part"]])
        self.assertNotIn("t50", found["shapes"]["1.5b"])
        self.assertNotIn("of_in_hbm", found["shapes"]["1.5b"]["dram"][0])

    def test_it_is_readable_and_says_what_is_missing(self):
        found = {"card": "a card", "driver": "1", "host_memory": 124 * GIB, "commit": "abc",
                 "parts": self.RESULTS}
        text = table.text(found, table.of(self.RESULTS))
        self.assertIn("matmul tflops 4", text)
        self.assertRegex(text, r"dram +3/3 +16384 .* 47\.5% +95\.0%  cpu 90%")
        self.assertIn("T50: at ", text)
        self.assertIn("rate.1.5b.dram.8192: failed: it broke", text)


if __name__ == "__main__":
    unittest.main()
