/// `sluice config` as a user runs it.

#include "tests/app/program.h"

namespace sluice::app {
namespace {

using testing::HasSubstr;

using ConfigVerbs = ProgramTest;

constexpr const char* kDeepSpeed = R"({
  "train_micro_batch_size_per_gpu": 2,
  "steps_per_print": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "sub_group_size": 5e8}
})";

TEST_F(ConfigVerbs, AnImportedFileTrainsOnceItHasAModelAndData) {
  write("ds.json", kDeepSpeed);
  const Ending import = shell("$sluice config import-deepspeed ds.json -o ds.yaml");
  EXPECT_EQ(import.code, 0) << import.said;
  EXPECT_EQ(import.said, "");
  const Ending train = shell(
      "$sluice train ds.yaml model.config='{model_type: gpt2, vocab_size: 50, n_positions: 16, "
      "n_embd: 16, n_layer: 2, n_head: 2}' data.train=tokens.bin data.seq_len=16 train.steps=2 "
      "compute.threads=1 cpu_adam.threads=1 tiers.gpu.limit=256MiB tiers.cpu.limit=256MiB");
  EXPECT_EQ(train.code, 0) << train.said;
  EXPECT_TRUE(exists("runs/ds/final/model.safetensors"));
}

TEST_F(ConfigVerbs, AnImportIsPrintedAndNeverOverwrites) {
  write("ds.json", kDeepSpeed);
  const Ending printed = shell("$sluice config import-deepspeed ds.json");
  EXPECT_EQ(printed.code, 0);
  EXPECT_THAT(printed.said, HasSubstr("lr: 0.0001\n"));
  write("ds.yaml", "mine");
  expect_refused(shell("$sluice config import-deepspeed ds.json -o ds.yaml"), kConfig,
                 {"ds.yaml exists", "-o"});
  EXPECT_EQ(text_of("ds.yaml"), "mine");
  expect_refused(shell("$sluice config import-deepspeed ds.json -o nowhere/ds.yaml"), kConfig,
                 {"nowhere/ds.yaml", "No such file"});
}

TEST_F(ConfigVerbs, WhatCannotBeImportedIsRefusedAndNothingIsWritten) {
  write("ds.json", R"({"fp16": {"enabled": true}})");
  expect_refused(shell("$sluice config import-deepspeed ds.json -o ds.yaml"), kConfig,
                 {"ds.json:1:11 fp16.enabled: true", "not built"});
  EXPECT_FALSE(exists("ds.yaml"));
  expect_refused(shell("$sluice config import-deepspeed nowhere.json"), kConfig,
                 {"nowhere.json", "No such file"});
  expect_refused(shell("$sluice config import-deepspeed ."), kConfig, {".: a folder"});
}

}  // namespace
}  // namespace sluice::app
