// DeepSpeed files as people have them, and those that are refused.
#include "engine/config/deepspeed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/load.h"

namespace sluice::config {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kInfinity = R"({
	"train_micro_batch_size_per_gpu": 4,
	"gradient_accumulation_steps": 8,
	"gradient_clipping": 0.0,
	"steps_per_print": 10,
	"bf16": {"enabled": true},
	"optimizer": {
		"type": "AdamW",
		"params": {"lr": 2e-5, "betas": [0.9, 0.98], "eps": 1e-7, "weight_decay": 3e-7}
	},
	"scheduler": {
		"type": "WarmupCosineLR",
		"params": {"total_num_steps": 1000, "warmup_num_steps": 30, "warmup_type": "linear"}
	},
	"zero_optimization": {
		"stage": 3,
		"sub_group_size": 5e8,
		"overlap_comm": true,
		"offload_param": {
			"device": "nvme", "nvme_path": "/mnt/nvme0", "pin_memory": true,
			"buffer_count": 5, "buffer_size": 1e8, "max_in_cpu": 1e9
		},
		"offload_optimizer": {
			"device": "nvme", "nvme_path": "/mnt/nvme1", "pin_memory": true,
			"buffer_count": 4, "pipeline_read": true, "pipeline_write": true
		}
	},
	"aio": {
		"block_size": 1048576, "queue_depth": 16, "intra_op_parallelism": 2,
		"single_submit": false, "overlap_events": true
	},
	"wall_clock_breakdown": false
})";

constexpr const char* kOffload = R"({
  "train_batch_size": 16,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "Adam", "params": {"lr": 0.00015}},
  "fp16": {"enabled": false, "loss_scale": 0, "initial_scale_power": 16},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "allgather_bucket_size": 2e8,
    "reduce_bucket_size": 2e8,
    "contiguous_gradients": true
  },
  "activation_checkpointing": {"cpu_checkpointing": true, "partition_activations": true}
})";

constexpr const char* kTrainer = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
           "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW",
                "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR",
                "params": {"total_num_steps": "auto", "warmup_min_lr": "auto",
                           "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": true},
    "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "steps_per_print": 2000,
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "wall_clock_breakdown": false
})";

/// As a run takes it, once it has a model.
Config loaded(const std::string& json) {
  const std::vector<std::string> model = {"model.preset=tiny"};
  return from_text(import_deepspeed(json, "ds.json").yaml, model);
}

TEST(DeepSpeed, ParametersAndStateOnDrives) {
  const Config c = loaded(kInfinity);
  EXPECT_EQ(c.zero_optimization.offload_param, schedule::ParamHome::kNvme);
  EXPECT_EQ(c.zero_optimization.offload_optimizer, schedule::OptimizerHome::kNvme);
  EXPECT_EQ(c.zero_optimization.sub_group_size, Bytes{6'000'000'000});
  EXPECT_THAT(c.tiers.nvme.paths, ElementsAre("/mnt/nvme0", "/mnt/nvme1"));
  EXPECT_EQ(c.aio.block_size, 1_MiB);
  EXPECT_EQ(c.aio.queue_depth, 16U);
  EXPECT_EQ(c.aio.threads, 2U);
  EXPECT_EQ(c.train.train_batch_size, 32);
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.train.gradient_clipping, std::nullopt);
  EXPECT_EQ(c.precision.compute, DType::kBf16);
  EXPECT_EQ(c.optimizer.lr, 2e-5);
  EXPECT_THAT(c.optimizer.betas, ElementsAre(0.9, 0.98));
  EXPECT_EQ(c.optimizer.eps, 1e-7);
  EXPECT_EQ(c.optimizer.weight_decay, 3e-7);
  EXPECT_EQ(c.scheduler.type, data::SchedulerType::kCosine);
  EXPECT_EQ(std::get<std::int64_t>(c.scheduler.warmup_steps), 30);
  EXPECT_EQ(c.scheduler.min_lr_ratio, 0.0001);
  EXPECT_EQ(c.logging.log_every, 10);
}

TEST(DeepSpeed, TheArithmeticIsShown) {
  EXPECT_THAT(import_deepspeed(kInfinity, "ds.json").yaml,
              HasSubstr("5e8 elements x 12 bytes of state = 6000000000 bytes"));
}

TEST(DeepSpeed, StateInHostMemoryAndWeightsOnTheDevice) {
  const Config c = loaded(kOffload);
  EXPECT_EQ(c.zero_optimization.offload_param, schedule::ParamHome::kNone);
  EXPECT_EQ(c.zero_optimization.offload_optimizer, schedule::OptimizerHome::kCpu);
  EXPECT_EQ(c.zero_optimization.offload_activation, schedule::ActivationHome::kCpu);
  EXPECT_EQ(c.zero_optimization.sub_group_size, std::nullopt);
  EXPECT_EQ(c.train.train_micro_batch_size_per_gpu, 4);
  EXPECT_EQ(c.precision.compute, DType::kF32);
  EXPECT_EQ(c.optimizer.type, train::OptimizerType::kAdamW);
  EXPECT_EQ(c.optimizer.lr, 0.00015);
  EXPECT_THAT(c.optimizer.betas, ElementsAre(0.9, 0.999));
  EXPECT_EQ(c.optimizer.weight_decay, 0.0);
  EXPECT_EQ(c.scheduler.type, data::SchedulerType::kConstant);
  EXPECT_EQ(std::get<std::int64_t>(c.scheduler.warmup_steps), 0);
}

TEST(DeepSpeed, Fp16AndItsLossScale) {
  const Config c = loaded(R"({"bf16": {"enabled": false},
      "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12,
               "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 4}})");
  EXPECT_EQ(c.precision.compute, DType::kF16);
  EXPECT_EQ(c.precision.loss_scale.fixed, std::nullopt);
  EXPECT_EQ(c.precision.loss_scale.initial_power, 12);
  EXPECT_EQ(c.precision.loss_scale.window, 500);
  EXPECT_EQ(c.precision.loss_scale.least, 4);
  EXPECT_EQ(loaded(R"({"fp16": {"enabled": true, "loss_scale": 128.0, "min_loss_scale": 0.0}})")
                .precision.loss_scale.fixed,
            128);
}

TEST(DeepSpeed, WhatIsSaidOfFp16WhereItIsOffCountsForNothing) {
  for (const char* off :
       {R"({"bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 100}})",
        R"({"bf16": {"enabled": true}, "fp16": {"initial_scale_power": 4, "min_loss_scale": 32}})",
        R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto", "loss_scale": 128}})",
        R"({"fp16": {"enabled": "auto", "auto_cast": true, "min_loss_scale": 3}})"}) {
    const Config c = loaded(off);
    EXPECT_EQ(c.precision.compute, DType::kBf16) << off;
    EXPECT_EQ(c.precision.loss_scale.fixed, std::nullopt) << off;
    EXPECT_EQ(c.precision.loss_scale.least, 1) << off;
  }
}

TEST(DeepSpeed, ComputesInFp32WhereNeitherHalfIsOn) {
  for (const char* off :
       {R"({})", R"({"fp16": {"enabled": false}})", R"({"bf16": {"enabled": false}})",
        R"({"bf16": {"enabled": false}, "fp16": {"enabled": false}})"}) {
    EXPECT_EQ(loaded(off).precision.compute, DType::kF32) << off;
  }
}

TEST(DeepSpeed, AutoAsATrainerFillsItIn) {
  const Config c = loaded(kTrainer);
  EXPECT_EQ(c.zero_optimization.offload_param, schedule::ParamHome::kCpu);
  EXPECT_EQ(c.zero_optimization.sub_group_size, Bytes{12'000'000'000});
  EXPECT_EQ(c.precision.compute, DType::kBf16);
  EXPECT_EQ(c.train.train_batch_size, 1);
  EXPECT_EQ(c.train.steps, std::nullopt);
  EXPECT_EQ(c.optimizer.lr, train::OptimizerOptions{}.lr);
  EXPECT_EQ(c.scheduler.type, data::SchedulerType::kLinear);
  EXPECT_EQ(c.scheduler.min_lr_ratio, 0.0);
  const std::string yaml = import_deepspeed(kTrainer, "ds.json").yaml;
  EXPECT_THAT(yaml, HasSubstr("train_batch_size: auto\n"));
  EXPECT_THAT(yaml, HasSubstr("# - scheduler.params.warmup_max_lr: auto: "));
}

/// DeepSpeed takes the logarithm for a word that it does not know, auto too.
TEST(DeepSpeed, AWarmUpThatIsALogarithmThereIsNoted) {
  const std::string said = "warmup is linear here, DeepSpeed's is logarithmic where warmup_type";
  const auto with = [](const std::string& scheduler) {
    return import_deepspeed(R"({"gradient_clipping": 1, "scheduler": )" + scheduler + "}",
                            "ds.json");
  };
  for (const std::string type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}) {
    for (const std::string params : {"{}", R"({"warmup_type": "auto"})"}) {
      const std::string scheduler = R"({"type": ")" + type + R"(", "params": )" + params + "}";
      SCOPED_TRACE(scheduler);
      const DeepSpeedImport import = with(scheduler);
      EXPECT_THAT(import.notes, ElementsAre(HasSubstr(said)));
      EXPECT_LT(import.yaml.find("# Note: warmup is linear here"), import.yaml.find("version: 1"));
    }
  }
  EXPECT_THAT(with(R"({"type": "WarmupLR", "params": {"warmup_type": "linear"}})").notes,
              testing::IsEmpty());
  EXPECT_THAT(with("null").notes, testing::IsEmpty());
}

TEST(DeepSpeed, GradientsAreNotClippedUnlessItSaysSo) {
  const DeepSpeedImport without = import_deepspeed("{}", "ds.json");
  EXPECT_THAT(without.yaml, HasSubstr("gradient_clipping: null\n"));
  EXPECT_THAT(without.notes, ElementsAre(HasSubstr("gradient_clipping is not set")));
  EXPECT_EQ(loaded("{}").train.gradient_clipping, std::nullopt);
  EXPECT_THAT(import_deepspeed(R"({"gradient_clipping": 0.5})", "ds.json").notes,
              testing::IsEmpty());
  EXPECT_EQ(loaded(R"({"gradient_clipping": 0.5})").train.gradient_clipping, 0.5);
}

TEST(DeepSpeed, AdamIsAdamWUnlessItSaysOtherwise) {
  EXPECT_EQ(
      loaded(R"({"optimizer": {"type": "adam", "params": {"adam_w_mode": false}}})").optimizer.type,
      train::OptimizerType::kAdam);
  EXPECT_EQ(loaded(R"({"optimizer": {"type": "Adam"}})").optimizer.type,
            train::OptimizerType::kAdamW);
}

TEST(DeepSpeed, OneDriveNamedTwiceIsOneDrive) {
  const Config c = loaded(R"({"zero_optimization": {
      "offload_param": {"device": "nvme", "nvme_path": "/mnt/a"},
      "offload_optimizer": {"device": "nvme", "nvme_path": "/mnt/a"}}})");
  EXPECT_THAT(c.tiers.nvme.paths, ElementsAre("/mnt/a"));
}

TEST(DeepSpeed, TabsMayStandBetweenAllValues) {
  EXPECT_EQ(loaded("{\t\"steps_per_print\"\t:\t10\t,\n\t\t\"wandb\": {}\t\n}").logging.log_every,
            10);
}

TEST(DeepSpeed, WhatIsQuotedInACommentStaysInIt) {
  const std::string yaml =
      import_deepspeed("{\"wandb\": {\"project\": \"x\\nseed: 3\", \"a\\nseed: 4\": 1}}",
                       "a\nseed: 5")
          .yaml;
  EXPECT_THAT(yaml, Not(HasSubstr("\nseed")));
}

std::string import_refusal(const std::string& json) {
  try {
    import_deepspeed(json, "ds.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::kConfig);
    return e.what();
  }
  return {};
}

TEST(DeepSpeedRefused, WhatIsNoJson) {
  EXPECT_THAT(import_refusal("{\"a\": 1,\n  // fast\n}"), HasSubstr("ds.json:2:3: no JSON: "));
  EXPECT_THAT(import_refusal("{\"a\": 1,\n}"), HasSubstr("ds.json:2:1: no JSON: "));
  EXPECT_THAT(import_refusal("{'a': 1}"), HasSubstr("ds.json:1:2: no JSON: "));
  EXPECT_THAT(import_refusal("{\"steps_per_print\": NaN}"), HasSubstr("ds.json:1:21: no JSON: "));
  EXPECT_THAT(import_refusal("{\"steps_per_print\":\n 1e999}"),
              AllOf(HasSubstr("ds.json:2:2: 1e999: "), HasSubstr("too large")));
  EXPECT_THAT(import_refusal("{\"wandb\": [-1" + std::string(500, '0') + "]}"),
              AllOf(HasSubstr("ds.json:1:12: -1000"), HasSubstr("0...: ")));
  EXPECT_THAT(import_refusal("a: 1\n"), HasSubstr("no JSON"));
  EXPECT_THAT(import_refusal(""), HasSubstr("ds.json:1:1: no JSON"));
  EXPECT_THAT(import_refusal("{} {}"), HasSubstr("no JSON"));
  EXPECT_THAT(import_refusal("[1]"), HasSubstr("a map of keys"));
  EXPECT_THAT(import_refusal("null"), HasSubstr("a map of keys"));
  EXPECT_THAT(import_refusal(std::string("{\"a\": \"\xff\"}")), HasSubstr("no UTF-8"));
  EXPECT_THAT(import_refusal(std::string(60, '[') + std::string(60, ']')),
              HasSubstr("nested more than"));
}

TEST(DeepSpeedRefused, AKeyGivenTwice) {
  EXPECT_THAT(import_refusal("{\"train_batch_size\": 1,\n \"train_batch_size\": 2}"),
              AllOf(HasSubstr("ds.json:2:2"), HasSubstr("duplicate key"), HasSubstr("1:2")));
}

TEST(DeepSpeedRefused, AnUnknownKeyWithTheNearestKnownOne) {
  EXPECT_THAT(import_refusal(R"({"zero_optimization": {"sub_group_sizes": 1}})"),
              AllOf(HasSubstr("ds.json:1:24 zero_optimization.sub_group_sizes: unknown key"),
                    HasSubstr("did you mean zero_optimization.sub_group_size?")));
  EXPECT_THAT(import_refusal(R"({"zero_optimization": {"aio": {"block_size": 4096}}})"),
              HasSubstr("did you mean aio.block_size?"));
  EXPECT_THAT(import_refusal(R"({"fp16": {"enabeld": true}})"),
              HasSubstr("did you mean fp16.enabled?"));
  EXPECT_THAT(import_refusal(R"({"optimizer": {"params": {"lrr": null}}})"),
              HasSubstr("unknown key"));
  EXPECT_THAT(import_refusal(R"({"zero_optimization": true})"),
              HasSubstr("a section belongs here"));
}

TEST(DeepSpeedRefused, ABatchThatContradicts) {
  EXPECT_THAT(import_refusal("{\"train_batch_size\": 32,\n\"train_micro_batch_size_per_gpu\": 2,\n"
                             "\"gradient_accumulation_steps\": 4}"),
              AllOf(HasSubstr("ds.json:1:22 train.train_batch_size: 32"), HasSubstr("= 8")));
}

/// DeepSpeed trains with the scheduler's rate, whatever the optimizer's is.
TEST(DeepSpeedRefused, TwoLearningRates) {
  const std::string optimizer = R"("optimizer": {"type": "Adam", "params": {"lr": 1e-4}})";
  const auto with = [&](const std::string& rate) {
    return import_refusal("{" + optimizer + R"(, "scheduler": {"type": "WarmupLR", "params": {)" +
                          rate + "}}}");
  };
  EXPECT_THAT(with(R"("warmup_max_lr": 2e-4)"),
              AllOf(HasSubstr("contradicts optimizer.params.lr: 1e-4"), HasSubstr("optimizer.lr")));
  EXPECT_THAT(with(""), HasSubstr("contradicts optimizer.params.lr: 1e-4"));
  EXPECT_EQ(with(R"("warmup_max_lr": 0.0001)"), "");
}

TEST(DeepSpeedRefused, AllThatIsWrongAtOnce) {
  EXPECT_THAT(import_refusal(R"({"amp": {"enabled": 1}, "optimizer": {"type": "Lamb"}, "trian": 1,
                  "zero_optimization": {"sub_group_size": 0.5, "zenflow": {"topk_ratio": 0.1}},
                  "aio": {"queue_depth": 0}})"),
              AllOf(HasSubstr("6 keys are refused"), HasSubstr("1:10 amp.enabled: 1"),
                    HasSubstr("optimizer.type: Lamb"), HasSubstr("trian: unknown key"),
                    HasSubstr("sub_group_size: 0.5"), HasSubstr("zenflow.topk_ratio"),
                    HasSubstr("aio.queue_depth: 0: less than 1")));
}

TEST(DeepSpeedRefused, NoBeginningOfAFileCrashes) {
  const std::string whole = kInfinity;
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THAT(import_refusal(whole.substr(0, n)), HasSubstr("no JSON")) << n;
  }
}

}  // namespace
}  // namespace sluice::config
