/// `sluice export` and `sluice checkpoint ...`, as a user runs them.

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"
#include "tests/checkpoint/gradient.h"

namespace sluice::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kCheckpoint = 5;
const std::string kLast = "runs/run/checkpoints/step-2";

class CheckpointVerbs : public ProgramTest {
 protected:
  /// Saves after both of its steps.
  void run(const std::string& more = "") const {
    const Ending ending = train("checkpoint.every=1 " + more);
    ASSERT_EQ(ending.code, 0) << ending.said;
    ASSERT_TRUE(exists(kLast + "/COMPLETE")) << ending.said;
  }
  Ending sluice(const std::string& arguments) const { return shell("$sluice " + arguments); }
  void expect_ok(const Ending& ending) const { EXPECT_EQ(ending.code, 0) << ending.said; }

  void flip_bit(const std::string& name, std::size_t at) const {
    std::string bytes = text_of(name);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 16);
    write(name, bytes);
  }
  /// verify and export say what is wrong, by these words, and leave nothing.
  void expect_damaged(const std::vector<std::string>& words) const {
    for (const std::string& verb : {"checkpoint verify " + kLast, "export " + kLast + " -o out"}) {
      const Ending ending = sluice(verb);
      EXPECT_EQ(ending.code, kCheckpoint) << verb << '\n' << ending.said;
      for (const std::string& word : words) EXPECT_THAT(ending.said, HasSubstr(word)) << verb;
      EXPECT_FALSE(exists("out"));
      EXPECT_EQ(shell("ls -d out*").code, 2);  // nor out.partial-...
    }
  }
};

TEST_F(CheckpointVerbs, WhatIsExportedIsWhatTheRunEndsWith) {
  // Layers of 1.2 MB of state: several files of records, several of weights.
  const std::string model =
      "'model.config={model_type: gpt2, vocab_size: 50, n_positions: 16, n_embd: 96, n_layer: 6, "
      "n_head: 2}' checkpoint.shard_size=1MiB tiers.gpu.limit=1GiB tiers.cpu.limit=1GiB ";
  for (const std::string cut :
       {"zero_optimization.sub_group_size=64KiB", "zero_optimization.sub_group_size=768KiB",
        "zero_optimization.sub_group_size=4MiB"}) {
    for (const std::string dtype : {"fp32", "bf16"}) {
      run(model + cut + " checkpoint.final_dtype=" + dtype);
      EXPECT_TRUE(exists(kLast + "/state-0-of-1-1.safetensors"));
      expect_ok(sluice("export runs/run --dtype " + dtype + " --shard-size 1MiB -o out"));
      EXPECT_TRUE(exists("out/model.safetensors.index.json"));
      expect_ok(shell("diff -r out runs/run/final"));
      expect_ok(sluice("checkpoint verify runs/run"));
      fs::remove_all(folder_ / "out");
      fs::remove_all(folder_ / "runs");
    }
  }
}

TEST_F(CheckpointVerbs, AnExportIsOfTheCheckpointThatWasNamedAndBf16) {
  run("checkpoint.final_dtype=bf16");
  expect_ok(sluice("export " + kLast + " -o last"));
  expect_ok(shell("diff -r last runs/run/final"));
  expect_ok(sluice("export runs/run/checkpoints/step-1 -o first"));
  EXPECT_NE(text_of("first/model.safetensors"), text_of("last/model.safetensors"));
  EXPECT_EQ(text_of("first/config.json"), text_of("last/config.json"));
}

/// A folder that has a tokenizer goes on as final/ has it, also when the model's own is gone.
TEST_F(CheckpointVerbs, AnExportHasWhatStoodBesideTheModel) {
  run();
  expect_ok(shell("mv runs/run/final model && rm -r runs"));
  write("model/tokenizer.json", "{\"kind\": \"none\"}");
  rewrite(
      "  config: {model_type: gpt2, vocab_size: 50, n_positions: 16, n_embd: 16, n_layer: 2, "
      "n_head: 2}",
      "  path: model");
  run();
  fs::remove_all(folder_ / "model");
  expect_ok(sluice("export runs/run --dtype fp32 -o out"));
  expect_ok(shell("diff -r out runs/run/final"));
  EXPECT_EQ(text_of("out/tokenizer.json"), "{\"kind\": \"none\"}");
}

TEST_F(CheckpointVerbs, ATargetThatIsThereStaysAsItIs) {
  run();
  write("out/mine", "mine");
  const Ending ending = sluice("export runs/run -o out");
  EXPECT_EQ(ending.code, kConfig);
  EXPECT_THAT(ending.said, HasSubstr("out: exists already"));
  EXPECT_EQ(text_of("out/mine"), "mine");
}

TEST_F(CheckpointVerbs, AListSaysWhatIsCompleteAndWhyNot) {
  run("train.steps=3");
  fs::remove(folder_ / "runs/run/checkpoints/step-3/COMPLETE");
  fs::remove(folder_ / "runs/run/checkpoints/step-1/model/config.json");
  const Ending ending = sluice("checkpoint list runs/run");
  expect_ok(ending);
  EXPECT_THAT(ending.said,
              testing::ContainsRegex(" 3 +25.* KiB  runs/run/checkpoints/step-3  not complete: "
                                     ".*COMPLETE: is not there[^\n]*\n"
                                     " +2 +25.* KiB  runs/run/checkpoints/step-2  complete\n"
                                     " +1 +.*step-1  not complete: .*config.json: is not there"));
}

TEST_F(CheckpointVerbs, ShowSaysWhereItStandsAndWhatItHolds) {
  run("checkpoint.keep=1");
  const Ending ending = sluice("checkpoint show runs/run");
  expect_ok(ending);
  const auto manifest = nlohmann::json::parse(text_of(kLast + "/manifest.json"));
  EXPECT_THAT(ending.said, AllOf(HasSubstr("step-2: format 1"), HasSubstr("step 2, 2 updates"),
                                 HasSubstr("7648 parameters")));
  EXPECT_THAT(ending.said, AllOf(HasSubstr("  * seed: 1337\n"), HasSubstr("    aio.engine: ")));
  EXPECT_THAT(ending.said, HasSubstr("transformer.h.1.mlp.c_fc.weight [16, 64] from 1792"));
  for (const auto& record : manifest["records"]) {
    EXPECT_THAT(ending.said, HasSubstr(record["xxh3"].get<std::string>()));
  }
}

/// After a delayed step.
class PendingUpdate : public CheckpointVerbs {
 protected:
  void save_after_step_12(checkpoint::Position::Pending pending) const {
    checkpoint::save_delayed(checkpoint::small_model("gpt2"), folder_ / kPath, kGrainElems,
                             2 * kGrainElems, 100_KiB, checkpoint::pending_at(pending));
  }
  const std::string kPath = "runs/run/checkpoints/step-12";
};

TEST_F(PendingUpdate, IsSaidByEveryVerb) {
  save_after_step_12(checkpoint::Position::Pending::kApplied);
  const std::string pending = "the update of step 12 is pending";
  const Ending list = sluice("checkpoint list runs/run");
  expect_ok(list);
  EXPECT_THAT(list.said, HasSubstr("step-12  complete; " + pending + "\n"));

  const Ending show = sluice("checkpoint show runs/run");
  expect_ok(show);
  const auto manifest = nlohmann::json::parse(text_of(kPath + "/manifest.json"));
  EXPECT_THAT(show.said, HasSubstr("step-12: format 2"));
  EXPECT_THAT(show.said,
              HasSubstr("gradient: 80.0 KiB in 5 records of 1 files; " + pending + "\n"));
  EXPECT_THAT(show.said, HasSubstr("layer.1[0:8192] fp32 1\n"));
  for (const auto& gradient : manifest["gradients"]) {
    EXPECT_THAT(show.said, HasSubstr(gradient["xxh3"].get<std::string>()));
  }

  const Ending verify = sluice("checkpoint verify runs/run");
  expect_ok(verify);
  EXPECT_THAT(verify.said, HasSubstr("step-12: whole; 12 records, 416.0 KiB"));

  const Ending exported = sluice("export runs/run -o out");
  expect_ok(exported);
  EXPECT_THAT(exported.said, HasSubstr("\n" + pending + ": the weights are without it\n"));
  EXPECT_TRUE(exists("out/model.safetensors"));
}

TEST_F(PendingUpdate, OfASkippedStepIsSaidToo) {
  save_after_step_12(checkpoint::Position::Pending::kSkipped);
  const std::string pending = "the update of step 12 is pending, and will be skipped";
  EXPECT_THAT(sluice("checkpoint list runs/run").said, HasSubstr("complete; " + pending + "\n"));
  EXPECT_THAT(sluice("checkpoint show runs/run").said, HasSubstr("; " + pending + "\n"));
}

TEST_F(PendingUpdate, ADamagedGradientIsFoundByVerifyAndExport) {
  save_after_step_12(checkpoint::Position::Pending::kApplied);
  flip_bit(kPath + "/gradient-0-of-1-0.safetensors", 4096 + 100);
  for (const std::string verb : {"checkpoint verify runs/run", "export runs/run -o out"}) {
    const Ending ending = sluice(verb);
    EXPECT_EQ(ending.code, kCheckpoint) << verb;
    EXPECT_THAT(words_from(ending.said, "error: "),
                HasSubstr("gradient-0-of-1-0.safetensors: the gradient of embedding[0:4096], "
                          "16.0 KiB at byte 4096 is not what was written"));
    EXPECT_FALSE(exists("out"));
  }
}

TEST_F(CheckpointVerbs, VerifyOfARunReadsAllOfItsCheckpoints) {
  run();
  const Ending whole = sluice("checkpoint verify runs/run");
  expect_ok(whole);
  EXPECT_THAT(whole.said, AllOf(HasSubstr("step-1: whole; 5 records, 240.0 KiB"),
                                HasSubstr("step-2: whole; 5 records, 240.0 KiB")));
  flip_bit("runs/run/checkpoints/step-2/state-0-of-1-0.safetensors", 53248 + 100);
  fs::remove(folder_ / "runs/run/checkpoints/step-1/COMPLETE");
  const Ending damaged = sluice("checkpoint verify runs/run");
  EXPECT_EQ(damaged.code, kCheckpoint);
  const std::string words = words_from(damaged.said, "error: ");
  EXPECT_THAT(words, AllOf(HasSubstr("step-2/state-0-of-1-0.safetensors: the record of "
                                     "positions[0:4096], 48.0 KiB at byte 53248"),
                           HasSubstr("step-1/COMPLETE: is not there")));
  EXPECT_THAT(damaged.said, Not(HasSubstr("whole;")));
}

TEST_F(CheckpointVerbs, WhatIsDamagedIsNamedAndNothingIsExported) {
  run();
  expect_ok(shell("cp -r " + kLast + " whole"));
  const auto restore = [&] { expect_ok(shell("rm -r " + kLast + " && cp -r whole " + kLast)); };
  const auto damage = [&](const std::string& script, const std::vector<std::string>& words) {
    SCOPED_TRACE(script);
    restore();
    expect_ok(shell("cd " + kLast + " && " + script));
    expect_damaged(words);
  };
  const std::string state = "state-0-of-1-0.safetensors";
  for (const std::string& file : {state, std::string("manifest.json"), std::string("COMPLETE"),
                                  std::string("model/config.json")}) {
    damage("rm " + file, {file + ": is not there"});
    damage("truncate -s -1 " + file, {file == "COMPLETE" ? "manifest.json" : file});
  }
  damage("rm -r model", {"model/config.json: is not there"});
  damage("sed -i 's/\"version\": 1/\"version\": 9/' manifest.json", {"manifest.json", "COMPLETE"});
  damage("mkfifo f && mv f COMPLETE", {"COMPLETE: is no file"});
  for (const auto& [name, at, word] :
       std::vector<std::tuple<std::string, std::size_t, std::string>>{
           {state, 20, "another header"},
           {state, 4096, "embedding[0:4096], 48.0 KiB at byte 4096"},
           {state, 249855, "final.norm[0:4096], 48.0 KiB at byte 200704"},
           {"manifest.json", 100, "not what COMPLETE was written for"},
           {"COMPLETE", 3, "not what COMPLETE was written for"},
           {"model/config.json", 30, "model/config.json: is not what was written"}}) {
    SCOPED_TRACE(name);
    restore();
    flip_bit(kLast + "/" + name, at);
    expect_damaged({word});
  }
}

TEST_F(CheckpointVerbs, WhatIsNoCheckpointIsSaid) {
  for (const std::string verb : {"checkpoint list", "checkpoint verify", "checkpoint show"}) {
    expect_refused(sluice(verb + " nowhere"), kConfig, {"nowhere is no folder"});
    expect_refused(sluice(verb + " run.yaml"), kConfig, {"run.yaml is no folder"});
  }
  fs::create_directories(folder_ / "empty/checkpoints");
  expect_ok(sluice("checkpoint list empty"));
  for (const std::string verb :
       {"checkpoint verify empty", "checkpoint show empty", "export empty -o out"}) {
    expect_refused(sluice(verb), kCheckpoint, {"empty", "no", "checkpoint"});
  }
  expect_refused(sluice("export empty/checkpoints -o out"), kCheckpoint,
                 {"COMPLETE: is not there"});
  expect_refused(sluice("export empty"), kConfig, {"-o is required"});
  expect_refused(sluice("export empty -o out --dtype fp16"), kConfig, {"--dtype", "fp16"});
  expect_refused(sluice("export empty -o out --shard-size 5"), kConfig, {"5"});
  expect_refused(sluice("export empty -o out --shard-size 1KiB"), kConfig, {"1KiB", "1MiB"});
}

}  // namespace
}  // namespace sluice::app
