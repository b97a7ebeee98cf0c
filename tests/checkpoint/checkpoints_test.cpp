#include "engine/checkpoint/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using testing::ElementsAre;

class Checkpoints : public testing::Test {
 protected:
  void add(const std::string& name, bool complete = true) const {
    folder_.write(name + (complete ? "/COMPLETE" : "/manifest.json"), "");
  }
  std::vector<std::string> listed() const {
    std::vector<std::string> names;
    for (const Found& found : list_checkpoints(folder_.path())) {
      names.push_back(found.folder.filename().string() + (found.complete ? "" : " broken"));
    }
    return names;
  }
  bool exists(const std::string& name) const { return fs::exists(folder_ / name); }

  const TempFolder folder_;
};

TEST_F(Checkpoints, AreListedTheNewestFirst) {
  for (const char* name : {"step-9", "step-10", "step-10.2", "step-10.10", "step-0"}) add(name);
  add("step-11", false);
  EXPECT_THAT(listed(), ElementsAre("step-11 broken", "step-10.10", "step-10.2", "step-10",
                                    "step-9", "step-0"));
}

TEST_F(Checkpoints, OtherNamesAreNone) {
  for (const char* name : {"step-", "step-x", "step--1", "step-1x", "step-1.", "step-1.2.3",
                           "Step-1", "step-2.partial-1-0", "step-99999999999999999999", "other"}) {
    add(name);
  }
  EXPECT_TRUE(listed().empty());
  EXPECT_TRUE(list_checkpoints(folder_ / "nowhere").empty());
}

TEST_F(Checkpoints, ANewOneTakesANameThatIsFree) {
  const auto name = [&](std::int64_t step) {
    return new_checkpoint(folder_.path(), step).filename().string();
  };
  EXPECT_EQ(name(5), "step-5");
  add("step-5", false);
  EXPECT_EQ(name(5), "step-5.2");
  fs::create_symlink("nowhere", folder_ / "step-5.2");
  EXPECT_EQ(name(5), "step-5.3");
  EXPECT_EQ(name(6), "step-6");
}

TEST_F(Checkpoints, ThatNeedNotBeKeptGo) {
  for (int step = 1; step <= 8; ++step) add("step-" + std::to_string(step));
  add("step-9", false);
  prune_checkpoints(folder_.path(), "step-8", {2, 3});
  EXPECT_THAT(listed(), ElementsAre("step-9 broken", "step-8", "step-7", "step-6", "step-3"));
  prune_checkpoints(folder_.path(), "step-8", {1, {}});
  EXPECT_THAT(listed(), ElementsAre("step-9 broken", "step-8"));
  EXPECT_FALSE(exists("step-7.partial-removed"));
}

/// A run that passed a damaged one over and went on before it.
TEST_F(Checkpoints, WhatIsDamagedDoesNotCountAndStays) {
  for (const int step : {4, 6, 7, 8, 30}) add("step-" + std::to_string(step));
  prune_checkpoints(folder_.path(), "step-8", {2, {}, {"step-30", "step-7"}});
  EXPECT_THAT(listed(), ElementsAre("step-30", "step-8", "step-7", "step-6"));
}

TEST_F(Checkpoints, AFolderThatCannotBeListedIsAnError) {
  std::ofstream(folder_ / "file") << "no folder";
  test::expect_error(Errc::kIo, {"file", "listing it"},
                     [&] { list_checkpoints(folder_ / "file"); });
}

TEST_F(Checkpoints, LeftoversAndNothingElseAreRemoved) {
  add("step-4");
  add("step-5.partial-77-0", false);
  add("step-3.partial-removed");
  add("mine");
  add("notes.partial-1");
  remove_leftovers(folder_.path());
  EXPECT_TRUE(exists("step-4") && exists("mine") && exists("notes.partial-1"));
  EXPECT_FALSE(exists("step-5.partial-77-0") || exists("step-3.partial-removed"));
}

}  // namespace
}  // namespace sluice::checkpoint
