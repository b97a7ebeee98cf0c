/// Runs that are stopped or killed and go on: what they leave is what one uninterrupted run leaves.
#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/app/program.h"

namespace sluice::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Of a record of metrics.jsonl what does not depend on the clock or on the process.
std::string lasting(const std::string& line) {
  const auto record = nlohmann::json::parse(line);
  std::string text;
  for (const char* key : {"step", "loss", "gnorm", "lr", "clip", "skipped", "targets"}) {
    text += record.at(key).dump() + " ";
  }
  return text + (record.contains("valid_loss") ? record["valid_loss"].dump() : "");
}

class GoOn : public ProgramTest {
 protected:
  GoOn() {
    std::string text = kRunFile;
    const auto replace = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    replace("train: [tokens.bin]", "train: [tokens.bin], valid: [tokens.bin]");
    replace("steps: 2,", "steps: 9,");
    replace("checkpoint: {", "eval: {every: 3, batches: 2}\ncheckpoint: {every: 2, ");
    write("run.yaml", text);
  }

  struct Left {
    std::vector<std::string> metrics;
    std::size_t weights = 0;  // a hash of them
    friend bool operator==(const Left&, const Left&) = default;
  };
  Left left(const std::string& run) const {
    Left left;
    std::istringstream lines(text_of(run + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) left.metrics.push_back(lasting(line));
    left.weights = std::hash<std::string>()(text_of(run + "/final/model.safetensors"));
    return left;
  }
  /// What the same run leaves when nothing befalls it.
  Left whole(const std::string& more = "") const {
    const Ending ending = train("name=whole " + more);
    EXPECT_EQ(ending.code, 0) << ending.said;
    return left("runs/whole");
  }
  void expect_no_leftovers(const std::string& run) const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / run)) {
      EXPECT_THAT(entry.path().string(), Not(HasSubstr(".partial")));
    }
  }
  bool saved() const {
    for (int step = 2; step < 9; step += 2) {
      if (exists(fmt::format("runs/mine/checkpoints/step-{}", step))) return true;
    }
    return false;
  }
  void flip(const std::string& file, std::size_t at) const {
    std::fstream stream(folder_ / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(byte ^ 0x10));
    ASSERT_TRUE(stream.good()) << file;
  }
  /// A run named mine that did all its steps and was ended before its weights were saved: it has
  /// checkpoints of steps 4, 6 and 8.
  void unfinished() const {
    const Ending ending = train("name=mine");
    ASSERT_EQ(ending.code, 0) << ending.said;
    fs::remove_all(folder_ / "runs/mine/final");
  }
};

TEST_F(GoOn, ASignalSavesAndTheRunGoesOnWhereItWas) {
  const std::string longer = "train.steps=200";  // the signal comes before their end
  const Left expected = whole(longer);
  for (const char* name : {"INT", "TERM", "HUP"}) {
    const Ending stopped = shell(
        fmt::format("sluice=\"env --default-signal=INT ${{sluice#timeout 300}}\"\n"
                    "$sluice train run.yaml name=mine {} & pid=$!\n"
                    "while kill -0 $pid && ! [ -s runs/mine/metrics.jsonl ]; do sleep 0.002; done\n"
                    "kill -{} $pid; wait $pid",
                    longer, name));
    EXPECT_EQ(stopped.code, kSaved) << stopped.said;
    EXPECT_THAT(stopped.said, HasSubstr(fmt::format("stopped by SIG{} after step ", name)));
    EXPECT_THAT(stopped.said, AllOf(HasSubstr("saved: "), HasSubstr("train.resume=auto")));
    const Ending resumed = train("name=mine " + longer);
    EXPECT_EQ(resumed.code, 0) << resumed.said;
    EXPECT_THAT(resumed.said, HasSubstr("goes on from"));
    EXPECT_EQ(left("runs/mine"), expected);
    fs::remove_all(folder_ / "runs/mine");
  }
}

TEST_F(GoOn, ASignalOrAFileAsksForACheckpointAndTheRunGoesOn) {
  const std::string begin =
      "sluice=${sluice#timeout 300}\n"
      "$sluice train run.yaml name=mine train.steps=100000 checkpoint.every=null & pid=$!\n"
      "while kill -0 $pid && ! [ -s runs/mine/metrics.jsonl ]; do sleep 0.002; done\n";
  const std::string end =
      "; while kill -0 $pid && ! ls runs/mine/checkpoints/step-*/COMPLETE; do sleep 0.01; done\n"
      "kill -0 $pid && echo alive; kill -KILL $pid; wait $pid";
  for (const char* ask : {"kill -USR1 $pid", "touch runs/mine/sluice.save"}) {
    const Ending ending = shell(begin + ask + end);
    EXPECT_EQ(ending.code, kKilled) << ending.said;
    EXPECT_THAT(ending.said, HasSubstr("alive"));
    EXPECT_FALSE(exists("runs/mine/sluice.save"));
    fs::remove_all(folder_ / "runs/mine");
  }
}

TEST_F(GoOn, AFinishedRunIsNotTouchedAndANewOneBegins) {
  ASSERT_EQ(train().code, 0);
  const Ending again = train();
  EXPECT_EQ(again.code, 0) << again.said;
  EXPECT_TRUE(exists("runs/run-2/final"));
  expect_error(shell("$sluice train run.yaml name=run train.resume=must; code=$?\n"
                     "rm -r runs; exit $code"),
               kCheckpoint, {"train.resume is must", "is done"});
}

TEST_F(GoOn, OfAFolderANewRunBegins) {
  const Left expected = whole();
  for (const char* from : {"runs/whole/checkpoints/step-6", "runs/whole"}) {
    const Ending ending = train(fmt::format("name=other train.resume={}", from));
    EXPECT_EQ(ending.code, 0) << ending.said;
    const Left other = left("runs/other");
    EXPECT_EQ(other.weights, expected.weights);
    EXPECT_EQ(other.metrics.back(), expected.metrics.back());
    fs::remove_all(folder_ / "runs/other");
  }
}

TEST_F(GoOn, NeverBeginsAnew) {
  unfinished();
  const Ending ending = train("name=mine train.resume=never");
  EXPECT_EQ(ending.code, kConfig);
  EXPECT_THAT(ending.said, HasSubstr("runs/mine exists"));
}

TEST_F(GoOn, WithoutACheckpointMustIsRefused) {
  expect_refused_at_once(train("train.resume=must"), kCheckpoint, {"there is no run of this name"});
  expect_refused_at_once(train("train.resume=nowhere"), kConfig, {"nowhere is no folder"});
}

/// Each byte of a checkpoint is vouched for: one that is damaged is named, and passed over.
TEST_F(GoOn, ADamagedCheckpointIsPassedOverWithItsName) {
  const Left expected = whole();
  struct Damage {
    const char* file;
    std::size_t at;
    const char* word;
  };
  for (const Damage& damage : {Damage{"state-0-of-1-0.safetensors", 40, "another header"},
                               Damage{"state-0-of-1-0.safetensors", 70000, "the record of"},
                               Damage{"manifest.json", 100, "not what COMPLETE was written for"},
                               Damage{"COMPLETE", 3, "not what COMPLETE was written for"},
                               Damage{"model/config.json", 10, "not what was written"}}) {
    SCOPED_TRACE(damage.file);
    unfinished();
    const std::string broken = "runs/mine/checkpoints/step-8";
    flip(broken + "/" + damage.file, damage.at);
    const Ending ending = train("name=mine");
    EXPECT_EQ(ending.code, 0) << ending.said;
    EXPECT_THAT(ending.said, AllOf(HasSubstr(damage.word), HasSubstr(broken),
                                   HasSubstr("passed over"), HasSubstr("step-6")));
    EXPECT_TRUE(exists(broken)) << "nothing is removed";
    EXPECT_TRUE(exists(broken + ".2")) << "saved anew beside it";
    EXPECT_EQ(left("runs/mine"), expected);
    expect_no_leftovers("runs/mine");
    fs::remove_all(folder_ / "runs/mine");
  }
}

/// What is passed over neither counts as kept nor pushes out what is whole.
TEST_F(GoOn, ADamagedCheckpointCostsNoOther) {
  unfinished();
  flip("runs/mine/checkpoints/step-8/state-0-of-1-0.safetensors", 70000);
  const Ending ending = train("name=mine train.steps=9 checkpoint.keep=1 checkpoint.every=7");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_TRUE(exists("runs/mine/checkpoints/step-7"));
  EXPECT_TRUE(exists("runs/mine/checkpoints/step-8"));
  EXPECT_FALSE(exists("runs/mine/checkpoints/step-6"));
}

TEST_F(GoOn, OfARunsFolderTheOneBeforeADamagedOneIsTaken) {
  unfinished();
  flip("runs/mine/checkpoints/step-8/state-0-of-1-0.safetensors", 70000);
  const Ending ending = train("name=other train.resume=runs/mine");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("passed over"), HasSubstr("step-6, after step 6")));
  EXPECT_TRUE(exists("runs/other/final"));
}

/// With counted names the newest run that can go on does, not the newest of all.
TEST_F(GoOn, OfCountedRunsTheNewestThatCanGoOnDoes) {
  ASSERT_EQ(train().code, 0);
  fs::remove_all(folder_ / "runs/run/final");
  write("runs/run-2/lock", "");
  const Ending ending = train();
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("runs/run goes on from"));
  EXPECT_TRUE(exists("runs/run/final"));
}

/// It is a run of ours (its lock is there) that ended before it had saved anything.
TEST_F(GoOn, ARunThatHasSavedNothingBeginsAnewInItsFolder) {
  write("runs/mine/lock", "");
  write("runs/mine/checkpoints/step-2.partial-77-0/state", "half");
  write("runs/mine/final.partial-77-0/model.safetensors", "half");
  write("runs/mine/metrics.jsonl", "{\"step\":1}\n");
  const Left expected = whole();
  const Ending ending = train("name=mine");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_EQ(left("runs/mine"), expected);
  expect_no_leftovers("runs/mine");
}

TEST_F(GoOn, FewerStepsThanAreDoneAreRefused) {
  unfinished();
  const Ending ending = train("name=mine train.steps=5");
  EXPECT_EQ(ending.code, kConfig) << ending.said;
  EXPECT_THAT(words_from(ending.said, "error: "),
              AllOf(HasSubstr("the run has 5 steps"), HasSubstr("step-8 is of step 8")));
}

TEST_F(GoOn, OtherHeadsInTheSameShapesAreAnotherModel) {
  unfinished();
  const Ending ending =
      shell("sed -i 's/n_head: 2/n_head: 4/' run.yaml; $sluice train run.yaml name=mine");
  EXPECT_EQ(ending.code, kConfig) << ending.said;
  EXPECT_THAT(words_from(ending.said, "error: "), HasSubstr("of the same shapes"));
}

TEST_F(GoOn, OtherDataIsSaid) {
  unfinished();
  std::vector<std::uint16_t> tokens(4000, 7);
  write_tokens(tokens);
  const Ending ending = train("name=mine");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("goes on with another data.train, contents"));
}

TEST_F(GoOn, OtherCodeForTheNumbersIsSaid) {
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
  unfinished();
  const Ending other =
      shell("ONEDNN_MAX_CPU_ISA=SSE41 $sluice train run.yaml name=other train.resume=runs/mine");
  EXPECT_EQ(other.code, 0) << other.said;
  EXPECT_THAT(other.said, HasSubstr("another LibTorch, oneDNN: ALL before, SSE41 now"));
  const Ending same = train("name=mine");
  EXPECT_EQ(same.code, 0) << same.said;
  EXPECT_THAT(same.said, Not(HasSubstr("goes on with another")));
}

TEST_F(GoOn, ADryRunChangesNothing) {
  unfinished();
  write("runs/mine/checkpoints/step-9.partial-77-0/state", "half");
  const Ending ending = train("name=mine --dry-run");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_TRUE(exists("runs/mine/checkpoints/step-9.partial-77-0/state"));
}

TEST_F(GoOn, NoFileOfARunAsksForCheckpoints) {
  expect_refused_at_once(train("checkpoint.trigger_file=lock"), kConfig,
                         {"checkpoint.trigger_file", "choose another"});
}

TEST_F(GoOn, WhereEveryCheckpointIsDamagedNothingBeginsAnew) {
  unfinished();
  for (const auto& entry : fs::directory_iterator(folder_ / "runs/mine/checkpoints")) {
    fs::remove(entry.path() / "manifest.json");
  }
  const Ending ending = train("name=mine");
  EXPECT_EQ(ending.code, kCheckpoint) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("manifest.json: is not there"),
                                 HasSubstr("train.resume=never begins anew")));
}

TEST_F(GoOn, WhatDiffersIsSaidAndFrozenNumbersAskForTheFlag) {
  unfinished();
  const Ending frozen = train("name=mine compute.threads=2");
  EXPECT_EQ(frozen.code, kConfig) << frozen.said;
  EXPECT_THAT(frozen.said,
              AllOf(HasSubstr("compute.threads: 1 before, 2 now"), HasSubstr("--change")));
  const Ending other_model =
      shell("sed -i 's/n_embd: 16/n_embd: 32/' run.yaml; $sluice train run.yaml name=mine");
  EXPECT_EQ(other_model.code, kConfig) << other_model.said;
  EXPECT_THAT(words_from(other_model.said, "error: "),
              HasSubstr("step-8: is of another model: it has transformer.wte.weight [50, 16] where "
                        "the run has transformer.wte.weight [50, 32]"));
  const Ending changed = shell(
      "sed -i 's/n_embd: 32/n_embd: 16/' run.yaml\n"
      "$sluice train run.yaml name=mine compute.threads=2 optimizer.lr=1e-3 train.steps=12 "
      "--change");
  EXPECT_EQ(changed.code, 0) << changed.said;
  EXPECT_THAT(changed.said,
              HasSubstr("goes on with another optimizer.lr: 0.0003 before, 0.001 now"));
}

/// The run goes on with a learning rate that no step survives.
TEST_F(GoOn, ARunThatEndsWithAnErrorNamesWhatIsSaved) {
  unfinished();
  const Ending ending = train(
      "name=mine optimizer.lr=1e3 optimizer.eps=1e-30 train.steps=100 train.on_nonfinite=stop");
  EXPECT_EQ(ending.code, kNonFinite) << ending.said;
  EXPECT_THAT(words_from(ending.said, "error: "),
              AllOf(HasSubstr("saved: "), HasSubstr("runs/mine/checkpoints/step-"),
                    HasSubstr("sluice train run.yaml name=mine optimizer.lr=1e3")));
}

TEST_F(GoOn, TwoRunsDoNotGoOnInOneFolder) {
  unfinished();
  const Ending ending = shell(
      "sluice=${sluice#timeout 300}\n"
      "$sluice train run.yaml name=mine train.steps=100000 > one.log & pid=$!\n"
      "while kill -0 $pid && ! grep -q 'goes on from' one.log; do sleep 0.01; done\n"
      "$sluice train run.yaml name=mine; code=$?; kill -KILL $pid; wait $pid; exit $code");
  EXPECT_EQ(ending.code, kConfig) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("another process is at work there"));
}

/// Whatever the moment: it goes on with the same numbers, and nothing is left half done.
TEST_F(GoOn, ARunThatIsKilledAtAnyMomentGoesOnToTheSameEnd) {
  const Left expected = whole();
#ifdef SLUICE_DIE_AT_CALL
  constexpr int kMoments = 24;
#else
  constexpr int kMoments = 5;  // of one that a sanitizer slows down
#endif
  int resumed = 0;
  for (int i = 0; i < kMoments; ++i) {
    // So many steps have been told of, and a moment more.
    const Ending ending = shell(
        fmt::format("sluice=${{sluice#timeout 300}}; metrics=runs/mine/metrics.jsonl\n"
                    "$sluice train run.yaml name=mine > log & pid=$!\n"
                    "while kill -0 $pid && ! [ -e $metrics ]; do sleep 0.002; done\n"
                    "while kill -0 $pid && [ $(wc -l < $metrics) -lt {} ]; do sleep 0.001; done\n"
                    "sleep {:.4f}; kill -KILL $pid; wait $pid; rm -f log; true",
                    i % 8, 0.001 * (i / 8)));
    fs::remove_all(folder_ / "runs/mine/final");  // as if it had come a moment sooner
    if (saved()) ++resumed;
    const Ending again = train("name=mine");
    ASSERT_EQ(again.code, 0) << again.said;
    ASSERT_EQ(left("runs/mine"), expected) << "killed at moment " << i << "\n" << again.said;
    expect_no_leftovers("runs/mine");
    fs::remove_all(folder_ / "runs/mine");
  }
  EXPECT_GT(resumed, kMoments / 5);
}

#ifdef SLUICE_DIE_AT_CALL
/// The same before each call by which a checkpoint comes to be, and by which an old one goes: from
/// the middle of the first checkpoint to the end of the second, of four.
TEST_F(GoOn, ARunThatIsKilledAtAnyCallOfACheckpointGoesOnToTheSameEnd) {
  const Left expected = whole();
  const std::string bare = "sluice=${sluice#timeout 300}; ";  // timeout would count its own
  const std::string under = std::string("LD_PRELOAD=") + SLUICE_DIE_AT_CALL +
                            " $sluice train run.yaml name=mine "
                            "aio.engine=threads train.steps=9 checkpoint.keep=1";
  ASSERT_EQ(shell(bare + "SLUICE_CALLS=calls " + under).code, 0);
  EXPECT_EQ(left("runs/mine"), expected);
  const int calls = std::stoi(text_of("calls"));
  EXPECT_GT(calls, 60);
  fs::remove_all(folder_ / "runs/mine");
  for (int at = calls / 8; at <= calls / 2; ++at) {
    const Ending killed = shell(fmt::format("{}SLUICE_DIE_AT={} {}", bare, at, under));
    ASSERT_EQ(killed.code, kKilled) << at << killed.said;
    const Ending again = train("name=mine train.steps=9 checkpoint.keep=1");
    ASSERT_EQ(again.code, 0) << at << again.said;
    ASSERT_EQ(left("runs/mine"), expected) << at << again.said;
    expect_no_leftovers("runs/mine");
    fs::remove_all(folder_ / "runs/mine");
  }
}
#endif

}  // namespace
}  // namespace sluice::app
