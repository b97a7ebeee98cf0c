/// The program as a user runs it, on a folder of its own and with little.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temp_folder.h"

namespace sluice::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// As in engine/base/error.cpp; they are a promise to scripts, so they are written out here.
constexpr int kConfig = 2;
constexpr int kDoesNotFit = 3;
constexpr int kIo = 4;

struct Ending {
  int code = -1;
  std::string said;
};

class CommandTest : public testing::Test {
 protected:
  /// $bench is the program, $drive the folder to measure; a hang ends with 124.
  Ending shell(const std::string& script) const {
    const std::string command =
        "cd '" + folder_.path() + "' && mkdir -p drive && bench='" + SLUICE_BENCH_PROGRAM +
        "' && tiny='--seconds 1.5 --file-size 8MiB --allow-ram'\n{ " + script + "\n} 2>&1";
    Ending ending;
    FILE* pipe =
        ::popen(("timeout 120 sh -c \"$(cat <<'END'\n" + command + "\nEND\n)\"").c_str(), "r");
    if (pipe == nullptr) return ending;
    std::array<char, 4096> piece{};
    while (const std::size_t n = std::fread(piece.data(), 1, piece.size(), pipe)) {
      ending.said.append(piece.data(), n);
    }
    const int status = ::pclose(pipe);
    ending.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ending;
  }
  nlohmann::json json() const { return nlohmann::json::parse(folder_.read("out.json")); }
  bool nothing_left() const { return std::filesystem::is_empty(folder_ / "drive"); }

  void expect_refused(const std::string& arguments, int code, const std::string& words) const {
    const Ending ending = shell("$bench nvme " + arguments);
    EXPECT_EQ(ending.code, code) << ending.said;
    EXPECT_THAT(ending.said, AllOf(HasSubstr("error: "), HasSubstr(words)));
    EXPECT_LE(std::ranges::count(ending.said, '\n'), 3) << ending.said;
    EXPECT_TRUE(nothing_left());
  }

  const test::TempFolder folder_;
};

TEST_F(CommandTest, MeasuresVerifiesAndSaysWhatToWriteIntoTheRunFile) {
  const Ending ending = shell("$bench nvme drive $tiny --json out.json");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("engines "), HasSubstr("writes      at most"),
                                 HasSubstr("  aio: {engine: "), HasSubstr("all as written")));
  const auto result = json().at("context").at("targets")[0];
  EXPECT_EQ(result.at("complete"), true);
  EXPECT_GE(result.at("verified_bytes"), 8 << 20);
  EXPECT_LE(result.at("written_bytes"), result.at("planned_write_bytes"));
  EXPECT_EQ(result.at("winner").at("traffic"), "mixed");
  const nlohmann::json all = json();
  for (const auto& row : all.at("benchmarks")) EXPECT_GT(row.at("bytes_per_second"), 0) << row;
  EXPECT_TRUE(nothing_left());
}

TEST_F(CommandTest, WithoutATerminalThereIsNoLineThatIsRewritten) {
  const Ending ending = shell("$bench nvme drive $tiny | cat");
  EXPECT_THAT(ending.said, AllOf(Not(HasSubstr("\r")), HasSubstr("comparing all of it")));
}

TEST_F(CommandTest, QuietPrintsTheResultsAlone) {
  const Ending ending = shell("$bench nvme drive $tiny --quiet");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said,
              AllOf(HasSubstr("traffic"), Not(HasSubstr("engines ")), Not(HasSubstr("comparing"))));
}

TEST_F(CommandTest, ReadOnlyWritesWhatIsReadAndNoMore) {
  const Ending ending = shell("$bench nvme drive $tiny --read-only --json out.json");
  EXPECT_EQ(ending.code, 0) << ending.said;
  const auto result = json().at("context").at("targets")[0];
  EXPECT_LE(result.at("written_bytes"), 9 << 20);
  EXPECT_EQ(result.at("winner").at("traffic"), "read");
  const nlohmann::json all = json();
  for (const auto& row : all.at("benchmarks")) EXPECT_EQ(row.at("traffic"), "read");
}

TEST_F(CommandTest, SteadyWritesOnUntilItsLimit) {
  const Ending ending = shell("$bench nvme drive $tiny --steady --max-write 4GiB --json out.json");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_TRUE(json().at("context").at("targets")[0].contains("steady"));
  EXPECT_LE(json().at("context").at("targets")[0].at("written_bytes"), 4LL << 30);
}

/// A drive's free bytes are no multiple of anything.
TEST_F(CommandTest, SteadyTakesALimitOfAnyNumberOfBytes) {
  const Ending ending =
      shell("$bench nvme drive $tiny --steady --max-write 2147483001B --json out.json");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("writing on and on: "));
  EXPECT_LE(json().at("context").at("targets")[0].at("written_bytes"), 2147483001LL);
}

/// The page, the run file and the answer are of the same winner.
TEST_F(CommandTest, WhatWasFoundIsPutToUse) {
  folder_.write("run.yaml", "# mine\nversion: 1\naio: {queue_depth: 3}  # kept\n");
  const Ending ending = shell(
      "$bench nvme drive $tiny --json out.json --html page.html --write-config run.yaml "
      "--model 8B --endurance 600TB --tflops 80");
  EXPECT_EQ(ending.code, 0) << ending.said;
  const auto winner = json().at("context").at("targets")[0].at("winner");
  const std::string file = folder_.read("run.yaml");
  EXPECT_THAT(file,
              AllOf(testing::StartsWith("# mine\nversion: 1\n"), HasSubstr("# kept"),
                    HasSubstr("engine: " + winner.at("engine").get<std::string>()),
                    HasSubstr(fmt::format("queue_depth: {}", winner.at("depth").get<int>()))));
  const std::string page = folder_.read("page.html");
  EXPECT_THAT(page, AllOf(testing::StartsWith("<!doctype html>"), HasSubstr("mixed")));
  EXPECT_THAT(ending.said,
              AllOf(HasSubstr("8B parameters"), HasSubstr("96 GB read and 96 GB written each step"),
                    HasSubstr("at 80 TFLOP/s"), HasSubstr("600 TB of writes are used up after")));
}

TEST_F(CommandTest, WhatCannotBePutToUseIsRefusedBeforeAnythingIsMeasured) {
  expect_refused("drive --allow-ram --model big", kConfig, "is not the size of a model");
  expect_refused("drive --allow-ram --model 8B --endurance 5", kConfig, "write the TBW");
  expect_refused("drive --allow-ram --endurance 600TB", kConfig, "add --model 8B");
  expect_refused("drive --allow-ram --write-config none.yaml", kConfig, "name a run file");
  expect_refused("drive --allow-ram --html nowhere/page.html", kIo, "name another file");
  expect_refused("drive --allow-ram --model 8B --endurance 1e300PB", kConfig, "write the TBW");
  expect_refused("drive --allow-ram --model 8B --read-only", kConfig, "leave --read-only or");
  folder_.write("list.yaml", "[a, b]\n");
  expect_refused("drive --allow-ram --write-config list.yaml", kConfig, "it is no block of keys");
  EXPECT_EQ(folder_.read("list.yaml"), "[a, b]\n");
  expect_refused("drive --allow-ram --write-config drive", kConfig, "name a run file");
}

TEST_F(CommandTest, NoTwoOptionsWriteOneFile) {
  folder_.write("run.yaml", "version: 1\n");
  expect_refused("drive --allow-ram --json run.yaml --write-config ./run.yaml", kConfig,
                 "another option writes that file");
  EXPECT_EQ(folder_.read("run.yaml"), "version: 1\n");
  expect_refused("drive --allow-ram --json out.json --html out.json", kConfig, "name another");
}

TEST_F(CommandTest, WhatIsRefusedLeavesNoFileForItsResults) {
  expect_refused("missing --json out.json", kConfig, "missing does not exist");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.json"));
}

TEST_F(CommandTest, ResultsThatCannotBeWrittenLeaveTheOldOnes) {
  folder_.write("out.json", "old");
  const Ending ending =
      shell("trap '' XFSZ; ulimit -f 0; $bench copy --quick --quiet --size 1MiB --json out.json");
  EXPECT_EQ(ending.code, kIo) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("--json out.json: cannot be written"));
  EXPECT_EQ(folder_.read("out.json"), "old");
}

TEST_F(CommandTest, TwoPathsOnOneDriveAreMeasuredOnce) {
  const Ending ending = shell(
      "mkdir drive/b; $bench nvme drive drive/b $tiny --json out.json; "
      "code=$?; rmdir drive/b; exit $code");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("is on the same drive: measured once"));
  EXPECT_EQ(json().at("context").at("targets").size(), 1U);
}

TEST_F(CommandTest, PathsOnTwoDrivesAreMeasuredAloneAndTogether) {
  const Ending ending = shell(
      "other=$(mktemp -d /dev/shm/sluice-XXXXXX); "
      "$bench nvme drive $other $tiny --max-write 1GiB --json out.json; code=$?; "
      "rmdir $other; exit $code");
  EXPECT_EQ(ending.code, 0) << ending.said;
  const auto targets = json().at("context").at("targets");
  if (targets.size() == 1) GTEST_SKIP() << "the folder for tests is in /dev/shm";
  ASSERT_EQ(targets.size(), 3U);
  // No drive is written more than --max-write, by both of its sweeps.
  const auto written = [&](std::size_t i) {
    return targets[i].at("written_bytes").get<std::int64_t>();
  };
  EXPECT_LE(std::max(written(0), written(1)) + written(2), 1LL << 30);
  EXPECT_EQ(targets[2].at("complete"), true);
  EXPECT_THAT(targets[2].at("name").get<std::string>(), HasSubstr(" + /dev/shm/"));
}

TEST_F(CommandTest, ASignalEndsItSoonWithWhatThereIs) {
  const Ending ending = shell(
      "$bench nvme drive --seconds 300 --file-size 8MiB --allow-ram --json out.json > said & "
      "pid=$!\nwhile kill -0 $pid && ! grep -q 'writes ' said; do sleep 0.05; done; sleep 0.5\n"
      "kill -TERM $pid; wait $pid; code=$?; cat said; exit $code");
  EXPECT_EQ(ending.code, 128 + 15) << ending.said;
  EXPECT_THAT(ending.said,
              AllOf(HasSubstr("stopping; what is being measured"),
                    HasSubstr("stopped before all of it was"), Not(HasSubstr("all as written"))));
  EXPECT_EQ(json().at("context").at("targets")[0].at("complete"), false);
  EXPECT_TRUE(nothing_left());
}

TEST_F(CommandTest, BadPathsAndSizesAreRefused) {
  folder_.write("file", "x");
  expect_refused("file --allow-ram", kConfig, "is a file, not a folder; name a folder");
  expect_refused("", kConfig, "PATH is required");
  expect_refused("drive --allow-ram --file-size 8", kConfig, "--file-size: '8' is not a size");
  expect_refused("drive --allow-ram --file-size 64KiB", kConfig, "too small; use");
  expect_refused("drive --allow-ram --file-size 1000TiB --max-write 9000TiB", kDoesNotFit,
                 "lower --file-size");
  expect_refused("drive --allow-ram --quick --full", kConfig, "leave one out");
  expect_refused("drive --allow-ram --steady --read-only", kConfig, "leave one out");
  expect_refused("drive --allow-ram --file-size 8MiB --max-write 8MiB", kConfig, "--max-write");
  expect_refused("drive --allow-ram --json nowhere/out.json", kIo, "name another file");
  expect_refused("drive --allow-ram --fast", kConfig, "--fast");
  for (const std::string bad : {"0", "nan", "inf", "1e18", "-1", "x"}) {
    expect_refused("drive --allow-ram --seconds " + bad, kConfig, "no number from 1 to 86400");
    expect_refused("drive --allow-ram --model 8B --tflops " + bad, kConfig, "is no number from");
  }
}

TEST_F(CommandTest, SaysWhatTheOptimizerMakesOfMemory) {
  const Ending ending = shell("$bench adam --quick --parameters 100K --dtype fp32 --json out.json");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("machine "), HasSubstr("% of the roof"),
                                 HasSubstr("  cpu_adam: {isa: ")));
  const nlohmann::json all = json();
  EXPECT_EQ(all.at("context").at("executable"), "sluice bench adam");
  bool updates = false;
  for (const auto& row : all.at("benchmarks")) {
    EXPECT_GT(row.at("bytes_per_second"), 0) << row;
    if (row.at("work") != "update" || row.at("run_type") != "aggregate") continue;
    updates = true;
    EXPECT_EQ(row.at("bytes"), 32 * row.at("parameters").get<std::uint64_t>());
    EXPECT_GT(row.at("of_roof"), 0);
  }
  EXPECT_TRUE(updates);
}

TEST_F(CommandTest, SaysHowFastCopiesAre) {
  const Ending ending = shell("$bench copy --quick --quiet --size 1MiB");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("h2d"), HasSubstr("d2h"), HasSubstr("both"),
                                 Not(HasSubstr("machine "))));
}

TEST_F(CommandTest, RefusesWhatMemoryCannotBeAsked) {
  const auto refused = [&](const std::string& arguments, int code, const std::string& words) {
    const Ending ending = shell("$bench " + arguments);
    EXPECT_EQ(ending.code, code) << ending.said;
    EXPECT_THAT(ending.said, AllOf(HasSubstr("error: "), HasSubstr(words)));
    EXPECT_LE(std::ranges::count(ending.said, '\n'), 3) << ending.said;
  };
  refused("adam --parameters 100T", kDoesNotFit, "--parameters");
  refused("adam --parameters 4K", kConfig, "at least 4096");
  refused("adam --parameters many", kConfig, "many");
  refused("adam --dtype fp16", kConfig, "--dtype fp16: bf16 or fp32");
  refused("adam --json /nowhere/out.json", kIo, "--json /nowhere/out.json");
  refused("copy --size 100TiB", kDoesNotFit, "--size");
  refused("copy --size 4KiB", kConfig, "at least 1MiB");
  refused("copy here", kConfig, "sluice bench copy --help");
}

}  // namespace
}  // namespace sluice::bench
