/// `sluice config` as a user runs it.

#include "tests/app/program.h"

namespace sluice::app {
namespace {

using testing::HasSubstr;

using ConfigVerbs = ProgramTest;

constexpr const char* kDeepSpeed = R"({
  "train_micro_batch_size_per_gpu": 2,
  "steps_per_print": 1,
  "gradient_clipping": 1.0,
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

TEST_F(ConfigVerbs, WhatAnImportChangesIsSaidAside) {
  write("ds.json", R"({"gradient_clipping": 1.0, "scheduler": {"type": "WarmupLR"}})");
  const Ending ending = shell("$sluice config import-deepspeed ds.json >ds.yaml");
  EXPECT_EQ(ending.code, 0);
  EXPECT_THAT(ending.said, HasSubstr("warning: warmup is linear here"));
  EXPECT_THAT(text_of("ds.yaml"), HasSubstr("# Note: warmup is linear here"));
}

TEST_F(ConfigVerbs, WhatCannotBeImportedIsRefusedAndNothingIsWritten) {
  write("ds.json", R"({"amp": {"enabled": true}})");
  expect_refused(shell("$sluice config import-deepspeed ds.json -o ds.yaml"), kConfig,
                 {"ds.json:1:10 amp.enabled: true", "not built"});
  EXPECT_FALSE(exists("ds.yaml"));
  expect_refused(shell("$sluice config import-deepspeed nowhere.json"), kConfig,
                 {"nowhere.json", "No such file"});
  expect_refused(shell("$sluice config import-deepspeed ."), kConfig, {".: a folder"});
}

TEST_F(ConfigVerbs, AFileThatIsGoodIsSaidToBeWithItsSizes) {
  const Ending ending =
      shell("$sluice config validate run.yaml data.valid=tokens.bin train.steps=7");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, testing::StartsWith("ok\n"));
  // 50 tokens and 16 positions of 16, two layers of 12 x 16 x 16 with 13 x 16 of biases and norms.
  EXPECT_THAT(ending.said, HasSubstr("model: 7648 parameters, drawn from seed 1337\n"));
  EXPECT_THAT(
      ending.said,
      HasSubstr("249 samples of 16 tokens to train on, 249 samples of 16 tokens to evaluate"));
  EXPECT_THAT(ending.said, HasSubstr("steps: 7 of 2 samples\n"));
  EXPECT_FALSE(exists("runs"));
}

TEST_F(ConfigVerbs, ValidateRefusesWhatAStartRefuses) {
  const auto refused = [&](const std::string& arguments, int code,
                           const std::vector<std::string>& words) {
    const Ending ending = shell("$sluice config validate run.yaml " + arguments);
    expect_refused_at_once(ending, code, words);
    EXPECT_THAT(ending.said, testing::Not(HasSubstr("ok\n")));
  };
  refused("data.seq_length=3", kConfig, {"data.seq_length", "data.seq_len?"});
  refused("data.train=nowhere.bin", kConfig, {"data.train", "nowhere.bin"});
  refused("data.valid=nowhere.bin", kConfig, {"data.valid", "nowhere.bin"});
  refused("data.valid=tokens.bin train.train_micro_batch_size_per_gpu=250", kConfig,
          {"data.valid has 249 samples", "takes 250"});
  refused("data.seq_len=17", kConfig, {"data.seq_len is 17", "16"});
  refused("model.config.n_layer=0", kConfig, {"n_layer"});
  refused("model.config.vocab_size=49", kIo, {"tokens.bin", "49"});
  refused("'tiers.nvme.paths=[tokens.bin]'", kConfig, {"tiers.nvme.paths", "not a folder"});
  refused("output_dir=tokens.bin/run", kConfig, {"tokens.bin", "Not a directory"});
  refused("train.steps=null train.gradient_accumulation_steps=150", kConfig,
          {"249 samples", "300"});
}

/// A run that has a checkpoint and no final weights.
TEST_F(ConfigVerbs, WhatARunGoesOnFromIsValidAndMayBeEvaluated) {
  const Ending begun = train("name=mine checkpoint.every=1");
  ASSERT_EQ(begun.code, 0) << begun.said;
  fs::remove_all(folder_ / "runs/mine/final");
  const auto with = [&](const std::string& verb, const std::string& resume) {
    return shell("$sluice " + verb + " run.yaml name=mine data.valid=tokens.bin eval.batches=1 " +
                 "train.resume=" + resume);
  };
  for (const char* verb : {"config validate", "eval"}) {
    const Ending ending = with(verb, "auto");
    EXPECT_EQ(ending.code, 0) << ending.said;
  }
  for (const char* verb : {"config validate", "train"}) {
    expect_refused(with(verb, "never"), kConfig, {"runs/mine exists"});
  }
  EXPECT_EQ(with("eval", "never").code, 0) << "it makes no run";
  EXPECT_TRUE(exists("runs/mine/checkpoints/step-2"));
}

TEST_F(ConfigVerbs, ValidateHoldsTheHeadersOfWeightsAgainstTheModel) {
  fs::copy(FIXTURES "/hf/llama/model", folder_ / "model");
  const std::string arguments = "model.config=null model.path=model data.seq_len=8";
  const Ending good = shell("$sluice config validate run.yaml " + arguments);
  EXPECT_EQ(good.code, 0) << good.said;
  EXPECT_THAT(good.said, HasSubstr("parameters, model\n"));
  std::string config = text_of("model/config.json");
  const std::string layers = "\"num_hidden_layers\": ";
  const auto at = config.find(layers);
  ASSERT_NE(at, std::string::npos);
  write("model/config.json", config.insert(at + layers.size(), "1"));
  expect_refused(shell("$sluice config validate run.yaml " + arguments), kIo,
                 {"has no tensor", "config.json asks for"});
}

TEST_F(ConfigVerbs, AFirstFileIsValid) {
  for (const std::string model : {"model", "model/config.json"}) {
    fs::remove_all(folder_ / "model");
    fs::copy(FIXTURES "/hf/llama/model", folder_ / "model");
    const Ending init = shell("$sluice config init --model " + model +
                              " --data tokens.bin --valid tokens.bin -o first.yaml");
    EXPECT_EQ(init.code, 0) << init.said;
    const Ending valid = shell("$sluice config validate first.yaml");
    EXPECT_EQ(valid.code, 0) << valid.said;
    EXPECT_THAT(valid.said, HasSubstr("samples of 256 tokens"));
    EXPECT_THAT(valid.said, HasSubstr(" of 8 samples\n"));
    const bool weights = model == "model";
    EXPECT_THAT(text_of("first.yaml"), HasSubstr(weights ? "lr: 2e-05\n" : "lr: 0.0003\n"));
    EXPECT_THAT(valid.said, HasSubstr(weights ? "parameters, model\n" : "drawn from seed"));
    const std::string again = "$sluice config init --model model --data tokens.bin -o first.yaml";
    expect_refused(shell(again), kConfig, {"first.yaml exists", "-o"});
    fs::remove(folder_ / "first.yaml");
  }
}

TEST_F(ConfigVerbs, AFirstFileOfLittleDataHasStepsToo) {
  fs::copy(FIXTURES "/hf/llama/model", folder_ / "model");
  write_tokens(std::vector<std::uint16_t>(3 * 256 + 1, 7));
  const Ending init = shell(
      "$sluice config init --model model --data tokens.bin >first.yaml && "
      "$sluice config validate first.yaml");
  EXPECT_EQ(init.code, 0) << init.said;
  EXPECT_THAT(init.said, HasSubstr("steps: 1 of 3 samples\n"));
}

TEST_F(ConfigVerbs, WhatAFirstFileCannotNameIsRefused) {
  const auto refused = [&](const std::string& arguments, const std::vector<std::string>& words) {
    expect_refused(shell("$sluice config init -o first.yaml " + arguments), kConfig, words);
    EXPECT_FALSE(exists("first.yaml"));
  };
  fs::copy(FIXTURES "/hf/llama/model", folder_ / "model");
  refused("--model nowhere --data tokens.bin", {"nowhere", "config.json"});
  refused("--model model --data nowhere.bin", {"data.train", "nowhere.bin"});
  refused("--model model", {"--data is required"});
  refused("--model model --data 'bad\xff.bin'", {"data.train", "bad", ".bin", "UTF-8", "rename"});
}

}  // namespace
}  // namespace sluice::app
