// The run file of `sluice config init`.
#include "engine/config/first_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/config/field.h"
#include "engine/config/load.h"

namespace sluice::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

FirstRun some_run() {
  return {.model = "a model: with #",
          .pretrained = true,
          .max_positions = 4096,
          .train = {"a b.txt", "*.bin"},
          .valid = {"-v"},
          .micro_batches = 3};
}

TEST(FirstRunFile, LoadsBackAsWhatWasAskedFor) {
  const Config c = from_text(first_run_file(some_run()));
  EXPECT_EQ(c.model.path, "a model: with #");
  EXPECT_THAT(c.data.train, ElementsAre("a b.txt", "*.bin"));
  EXPECT_THAT(c.data.valid, ElementsAre("-v"));
  EXPECT_EQ(c.data.seq_len, 1024);
  EXPECT_EQ(c.train.train_batch_size, 3);
  EXPECT_EQ(c.optimizer.lr, 2e-5);
  EXPECT_THAT(c.warnings, ElementsAre());
}

TEST(FirstRunFile, AModelWithFewPositionsGetsShortSamplesAndANewOneAUsualRate) {
  FirstRun run = some_run();
  run.pretrained = false;
  run.max_positions = 128;
  const Config c = from_text(first_run_file(run));
  EXPECT_EQ(c.data.seq_len, 128);
  EXPECT_EQ(c.optimizer.lr, train::OptimizerOptions{}.lr);
}

TEST(FirstRunFile, SaysOfEachKeyWhatTheTableSays) {
  std::string text = first_run_file(some_run());
  for (std::size_t at = 0; (at = text.find("\n", at)) != std::string::npos;) {
    const std::size_t word = text.find_first_not_of("\n #", at);
    text.replace(at, word == std::string::npos ? std::string::npos : word - at, " ");
  }
  for (const char* key : {"seed", "model.path", "optimizer.lr", "tiers.gpu.limit"}) {
    EXPECT_THAT(text, HasSubstr(find_field(key)->doc));
  }
}

}  // namespace
}  // namespace sluice::config
