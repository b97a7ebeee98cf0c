// What is accepted, and what it becomes.
#include "engine/config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/write.h"

namespace sluice::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Config from(const std::string& text, const std::vector<std::string>& overrides = {},
            const Environment& environment = {}) {
  return from_text("model: {preset: tiny}\n" + text, overrides, environment);
}

TEST(Load, AFileOfOneLineGivesTheDefaults) {
  const Config c = from("");
  EXPECT_EQ(c.seed, 1337U);
  EXPECT_EQ(c.model.preset, "tiny");
  EXPECT_FALSE(c.model.config.has_value());
  EXPECT_EQ(c.aio.block_size, 1_MiB);
  EXPECT_EQ(c.train.gradient_clipping, 1.0);
  EXPECT_EQ(std::get<double>(c.scheduler.warmup_steps), 0.03);
  EXPECT_EQ(c.zero_optimization.offload_optimizer, schedule::OptimizerHome::kCpu);
  EXPECT_THAT(c.warnings, ElementsAre());
}

TEST(Load, EveryTypeIsRead) {
  const Config c = from(
      "seed: 7\n"
      "data: {train: [a.txt, b.txt], valid: c.bin, shuffle: false, format: tokens}\n"
      "train: {tokens: 1.1M, gradient_clipping: null}\n"
      "optimizer: {lr: 2e-5, betas: [0, 0.999], type: adam}\n"
      "scheduler: {warmup_steps: 1k, min_lr_ratio: 10%}\n"
      "tiers: {gpu: {limit: 24GiB}, cpu: {limit: 80%, reserve: 512 MiB}}\n"
      "aio: {direct: true, block_size: auto, queue_depth: 8, threads: 3}\n"
      "compute: {threads: 2, loss_chunk: auto, mlp_chunk: 4096}\n"
      "zero_optimization: {offload_param: {device: none}, offload_optimizer: {device: nvme}, "
      "sub_group_size: 64MiB}\n"
      "logging: {level: warning, progress: false}\n"
      "profile: {steps: 3-12}\n");
  EXPECT_EQ(c.seed, 7U);
  EXPECT_THAT(c.data.train, ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(c.data.valid, ElementsAre("c.bin"));
  EXPECT_FALSE(c.data.shuffle);
  EXPECT_EQ(c.data.format, data::DataFormat::kTokens);
  EXPECT_EQ(c.train.tokens, 1'100'000);
  EXPECT_EQ(c.train.gradient_clipping, std::nullopt);
  EXPECT_EQ(c.optimizer.lr, 2e-5);
  EXPECT_THAT(c.optimizer.betas, ElementsAre(0.0, 0.999));
  EXPECT_EQ(c.optimizer.type, train::OptimizerType::kAdam);
  EXPECT_EQ(std::get<std::int64_t>(c.scheduler.warmup_steps), 1000);
  EXPECT_EQ(c.scheduler.min_lr_ratio, 0.1);
  EXPECT_EQ(std::get<Bytes>(c.tiers.gpu.limit), 24_GiB);
  EXPECT_EQ(std::get<double>(*c.tiers.cpu.limit), 0.8);
  EXPECT_EQ(c.tiers.cpu.reserve, 512_MiB);
  EXPECT_EQ(c.aio.direct, nvme::Direct::kTrue);
  EXPECT_EQ(c.aio.block_size, 1_MiB);
  EXPECT_EQ(c.aio.queue_depth, 8U);
  EXPECT_EQ(c.aio.threads, 3U);
  EXPECT_EQ(c.compute.threads, 2U);
  EXPECT_EQ(c.compute.loss_chunk, std::nullopt);
  EXPECT_EQ(c.compute.mlp_chunk, 4096);
  EXPECT_EQ(c.zero_optimization.offload_param, schedule::ParamHome::kNone);
  EXPECT_EQ(c.zero_optimization.offload_optimizer, schedule::OptimizerHome::kNvme);
  EXPECT_EQ(c.zero_optimization.sub_group_size, 64_MiB);
  EXPECT_EQ(c.logging.level, log::Level::kWarning);
  EXPECT_EQ(c.logging.progress, Progress::kFalse);
  EXPECT_EQ(c.profile.steps->first, 3);
  EXPECT_EQ(c.profile.steps->last, 12);
  EXPECT_EQ(from("profile: {steps: 4}").profile.steps->last, 4);
  EXPECT_FALSE(from("profile: {steps: null}").profile.steps);
}

TEST(Load, CountsHaveDecimalUnits) {
  EXPECT_EQ(from("train: {tokens: 3k}").train.tokens, 3'000);
  EXPECT_EQ(from("train: {tokens: 3K}").train.tokens, 3'000);
  EXPECT_EQ(from("train: {tokens: 3M}").train.tokens, 3'000'000);
  EXPECT_EQ(from("train: {tokens: 3.5G}").train.tokens, 3'500'000'000);
}

TEST(Load, OneIsACountOfWarmUpStepsAndAHundredPercentAFraction) {
  EXPECT_EQ(std::get<std::int64_t>(from("scheduler: {warmup_steps: 1}").scheduler.warmup_steps), 1);
  EXPECT_EQ(std::get<double>(from("scheduler: {warmup_steps: 100%}").scheduler.warmup_steps), 1.0);
  EXPECT_EQ(std::get<double>(from("scheduler: {warmup_steps: 1.0}").scheduler.warmup_steps), 1.0);
}

TEST(Load, AModelConfigKeepsItsTypes) {
  const Config c = from_text(
      "model:\n  config: {n_layer: 4, eps: 1e-05, rope: null, tie: true, act: gelu, id: '12',\n"
      "           size: 1.0, archs: [A, B], nested: {a: -3}}\n");
  const nlohmann::json& m = *c.model.config;
  EXPECT_TRUE(m["n_layer"].is_number_integer());
  EXPECT_EQ(m["eps"], 1e-05);
  EXPECT_TRUE(m["rope"].is_null());
  EXPECT_EQ(m["tie"], true);
  EXPECT_EQ(m["act"], "gelu");
  EXPECT_EQ(m["id"], "12");
  EXPECT_TRUE(m["size"].is_number_float());
  EXPECT_EQ(m["archs"][1], "B");
  EXPECT_EQ(m["nested"]["a"], -3);
}

TEST(Load, AnchorsAreFollowed) {
  const Config c = from("train: {steps: &n 40}\neval: {every: *n}");
  EXPECT_EQ(c.eval.every, 40);
}

TEST(Load, WindowsLinesAndAByteOrderMarkAreRead) {
  const Config c = from_text("\xef\xbb\xbfmodel:\r\n  preset: tiny\r\nseed: 4\r\n");
  EXPECT_EQ(c.seed, 4U);
  EXPECT_EQ(c.model.preset, "tiny");
}

TEST(Batch, TwoDecideTheThird) {
  const auto batch = [](const std::string& keys) {
    const train::TrainOptions t = from("train: {" + keys + "}").train;
    return std::vector{*t.train_micro_batch_size_per_gpu, *t.gradient_accumulation_steps,
                       *t.train_batch_size};
  };
  const std::string micro = "train_micro_batch_size_per_gpu: ";
  const std::string steps = "gradient_accumulation_steps: ";
  const std::string all = "train_batch_size: ";
  EXPECT_THAT(batch(""), ElementsAre(1, 1, 1));
  EXPECT_THAT(batch(micro + "4"), ElementsAre(4, 1, 4));
  EXPECT_THAT(batch(steps + "4"), ElementsAre(1, 4, 4));
  EXPECT_THAT(batch(all + "4"), ElementsAre(1, 4, 4));
  EXPECT_THAT(batch(micro + "4, " + steps + "3"), ElementsAre(4, 3, 12));
  EXPECT_THAT(batch(micro + "4, " + all + "12"), ElementsAre(4, 3, 12));
  EXPECT_THAT(batch(steps + "3, " + all + "12"), ElementsAre(4, 3, 12));
  EXPECT_THAT(batch(steps + "3, " + micro + "auto, " + all + "12"), ElementsAre(4, 3, 12));
  EXPECT_THAT(batch(micro + "4, " + steps + "3, " + all + "12"), ElementsAre(4, 3, 12));
}

TEST(Precision, Bf16GradientsNeedOneMicroBatch) {
  EXPECT_EQ(from("precision: {grad_dtype: bf16}").precision.grad_dtype, DType::kBf16);
}

TEST(Update, ArrivesWhereNothingNeedsAllGradients) {
  const std::string arriving = "optimizer: {update: arriving}\ntrain: {on_nonfinite: stop, ";
  const Config c = from(arriving + "clip_scope: segment}");
  EXPECT_EQ(c.optimizer.update, schedule::Update::kArriving);
  EXPECT_EQ(c.train.clip_scope, train::ClipScope::kSegment);
  EXPECT_EQ(from(arriving + "gradient_clipping: null}").optimizer.update,
            schedule::Update::kArriving);
  EXPECT_EQ(from("seed: 1").optimizer.update, std::nullopt);
}

TEST(Update, IsDelayedFromACountOrAShareOfTheSteps) {
  const Config c =
      from("optimizer: {update: delayed, delayed_update_start: 10%}\neval: {drain: true}");
  EXPECT_EQ(c.optimizer.update, schedule::Update::kDelayed);
  EXPECT_EQ(c.optimizer.delayed_update_start, data::StepsOrShare(0.1));
  EXPECT_TRUE(c.eval.drain);
  EXPECT_EQ(from("optimizer: {delayed_update_start: 7}").optimizer.delayed_update_start,
            data::StepsOrShare(std::int64_t{7}));
  EXPECT_EQ(from("seed: 1").optimizer.delayed_update_start, data::StepsOrShare(std::int64_t{40}));
  EXPECT_FALSE(from("seed: 1").eval.drain);
}

TEST(Overrides, ReplaceWhatTheFileSays) {
  const Config c =
      from("train: {steps: 5, max_skips: 2}\nseed: 3",
           {"train.steps=50", "data.train=*.txt", "optimizer.betas=[0.5, 0.6]",
            "output_dir=a: b # c", "seed=4", "seed=5", "train.gradient_clipping=null"});
  EXPECT_EQ(c.train.steps, 50);
  EXPECT_EQ(c.train.max_skips, 2);
  EXPECT_THAT(c.data.train, ElementsAre("*.txt"));
  EXPECT_THAT(c.optimizer.betas, ElementsAre(0.5, 0.6));
  EXPECT_EQ(c.output_dir, "a: b # c");
  EXPECT_EQ(c.seed, 5U);
  EXPECT_EQ(c.train.gradient_clipping, std::nullopt);
}

TEST(Overrides, ReachIntoAFreeMap) {
  const std::vector<std::string> more = {"model.config.n_layer=6", "model.config.name=x"};
  const Config c = from_text("model: {config: {n_layer: 4, n_head: 2}}", more);
  EXPECT_EQ((*c.model.config)["n_layer"], 6);
  EXPECT_EQ((*c.model.config)["n_head"], 2);
  EXPECT_EQ((*c.model.config)["name"], "x");
}

TEST(Overrides, CanBeAllThereIs) {
  const std::vector<std::string> all = {"model.preset=tiny", "train.steps=3"};
  EXPECT_EQ(from_text("", all).train.steps, 3);
}

TEST(Paths, TakeTheNameAndTheEnvironment) {
  const Environment env = {{"DISK", "/mnt/d0"}};
  const Config c =
      from("output_dir: out/${name}\ntiers: {nvme: {paths: ['${env:DISK}/${name}']}}\nname: first",
           {}, env);
  EXPECT_EQ(c.output_dir, "out/first");
  EXPECT_THAT(c.tiers.nvme.paths, ElementsAre("/mnt/d0/first"));
}

TEST(Paths, TheDefaultTakesTheNameToo) {
  EXPECT_EQ(from("name: first").output_dir, "runs/first");
}

TEST(Paths, WaitForANameThatIsAuto) {
  const Environment env = {{"DISK", "/mnt/d0"}};
  const Config c = from("data: {train: '${env:DISK}/${name}.txt'}\nname: auto", {}, env);
  EXPECT_EQ(c.output_dir, "runs/${name}");
  const Config named = with_name(c, "run-7");
  EXPECT_EQ(named.name, "run-7");
  EXPECT_EQ(named.output_dir, "runs/run-7");
  EXPECT_THAT(named.data.train, ElementsAre("/mnt/d0/run-7.txt"));
  EXPECT_THROW(with_name(c, "a/b"), Error);
}

TEST(Warnings, NameTheKeyThatAnAliasMeans) {
  const Config c = from("aio: {intra_op_parallelism: 4}");
  EXPECT_EQ(c.aio.threads, 4U);
  EXPECT_THAT(c.warnings,
              ElementsAre("run.yaml:2:7 aio.intra_op_parallelism: is called aio.threads here"));
}

TEST(Warnings, AWarmUpLongerThanTheRunIsSaid) {
  EXPECT_THAT(from("train: {steps: 5}\nscheduler: {warmup_steps: 10}").warnings,
              ElementsAre(HasSubstr("never reaches")));
}

TEST(Warnings, WhatIsAboutLateUpdatesAloneIsSaidToDoNothing) {
  const std::string both = "eval: {drain: true}\noptimizer: {delayed_update_start: 3";
  EXPECT_THAT(from(both + "}").warnings,
              ElementsAre(HasSubstr("eval.drain: true does nothing"),
                          HasSubstr("optimizer.delayed_update_start does nothing")));
  EXPECT_THAT(from(both + ", update: delayed}").warnings, ElementsAre());
  EXPECT_THAT(from("optimizer: {delayed_update_start: 40}").warnings, ElementsAre());
}

}  // namespace
}  // namespace sluice::config
