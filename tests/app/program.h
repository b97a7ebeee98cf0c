/// The program as a user runs it: a folder with a run file, and what it says and leaves there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace sluice::app {

namespace fs = std::filesystem;

// As in engine/base/error.cpp; they are a promise to scripts, so they are written out here.
inline constexpr int kConfig = 2;
inline constexpr int kDoesNotFit = 3;
inline constexpr int kIo = 4;
inline constexpr int kCheckpoint = 5;
inline constexpr int kNonFinite = 6;
inline constexpr int kWatchdog = 7;
inline constexpr int kSaved = 75;
inline constexpr int kKilled = 128 + 9;

inline constexpr const char* kRunFile = R"(version: 1
name: auto
output_dir: runs/${name}
model:
  config: {model_type: gpt2, vocab_size: 50, n_positions: 16, n_embd: 16, n_layer: 2, n_head: 2}
data: {train: [tokens.bin], seq_len: 16}
train: {steps: 2, train_micro_batch_size_per_gpu: 2, gradient_accumulation_steps: 1}
precision: {compute: fp32}
compute: {threads: 1}
cpu_adam: {threads: 1}
zero_optimization:
  offload_param: {device: cpu}
  offload_optimizer: {device: nvme}
  sub_group_size: 64KiB
tiers:
  gpu: {limit: 256MiB}
  cpu: {limit: 256MiB}
  nvme: {allow_ram_path: true}
checkpoint: {final_dtype: fp32}
)";

struct Ending {
  int code = -1;
  std::string said;
};

/// Each test in a folder of its own, with a run file that works and 4000 tokens below 50.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    write("run.yaml", kRunFile);
    std::vector<std::uint16_t> tokens(4000);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i % 50);
    write_tokens(tokens);
  }

  void write(const std::string& name, const std::string& text) const {
    temp_folder_.write(name, text);
  }
  void write_tokens(const std::vector<std::uint16_t>& tokens) const {
    write("tokens.bin", {reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()});
  }
  /// The run file with one line of it replaced.
  void rewrite(const std::string& from, const std::string& to) const {
    std::string text = kRunFile;
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write("run.yaml", text.replace(at, from.size(), to));
  }

  /// A shell script in the folder; $sluice is the program. A hang ends with 124.
  Ending shell(const std::string& script) const {
    const std::string command = "cd '" + folder_.string() + "' && sluice='timeout 300 " +
                                SLUICE_PROGRAM + "'\n{ " + script + "\n} 2>&1";
    Ending ending;
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return ending;
    std::array<char, 4096> piece{};
    while (const std::size_t n = std::fread(piece.data(), 1, piece.size(), pipe)) {
      ending.said.append(piece.data(), n);
    }
    const int status = ::pclose(pipe);
    ending.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ending;
  }
  Ending train(const std::string& arguments = "") const {
    return shell("$sluice train run.yaml " + arguments);
  }

  std::string text_of(const std::string& name) const { return temp_folder_.read(name); }
  bool exists(const std::string& name) const { return fs::exists(folder_ / name); }

  /// No final weights, no folder or file on its way to become something.
  void expect_nothing_half_written() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      EXPECT_NE(name, "final");
      EXPECT_THAT(name, testing::Not(testing::HasSubstr(".partial")));
      EXPECT_THAT(name, testing::Not(testing::HasSubstr(".swap")));
    }
  }
  /// Its lines up to a table of numbers, whose lines are indented, or to what others said later.
  static std::string refusal_in(const std::string& said) {
    std::istringstream lines(said.substr(std::min(said.find("error: "), said.size())));
    std::string refusal;
    for (std::string line; std::getline(lines, line) && !line.empty() && !line.starts_with("  ");) {
      refusal += line + '\n';
    }
    return refusal;
  }
  /// All words from there on, the table's too, one space apart: a line may end between two of them.
  static std::string words_from(const std::string& said, const std::string& begin) {
    std::istringstream stream(said.substr(std::min(said.find(begin), said.size())));
    std::string words;
    for (std::string word; stream >> word;) words += (words.empty() ? "" : " ") + word;
    return words;
  }
  /// Three lines of at most 120 characters; a path that is longer stands alone.
  static void expect_short(const Ending& ending) {
    const std::string refusal = refusal_in(ending.said);
    EXPECT_LE(std::ranges::count(refusal, '\n'), 3) << refusal;
    std::istringstream lines(refusal);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.size() <= 120 || line.find(' ') == std::string::npos) << line;
    }
  }
  void expect_error(const Ending& ending, int code, const std::vector<std::string>& words) const {
    EXPECT_EQ(ending.code, code) << ending.said;
    EXPECT_THAT(ending.said, testing::HasSubstr("error: "));
    const std::string told = words_from(ending.said, "error: ");
    for (const std::string& word : words) EXPECT_THAT(told, testing::HasSubstr(word));
    expect_nothing_half_written();
  }
  void expect_refused(const Ending& ending, int code, const std::vector<std::string>& words) const {
    expect_error(ending, code, words);
    expect_short(ending);
  }
  /// Found before the run's folder was made.
  void expect_refused_at_once(const Ending& ending, int code,
                              const std::vector<std::string>& words) const {
    expect_refused(ending, code, words);
    EXPECT_FALSE(exists("runs"));
  }

  const test::TempFolder temp_folder_;
  const fs::path folder_ = temp_folder_.path();
};

/// A run of many steps; `then` happens after its first one.
inline std::string in_the_middle(const std::string& then) {
  return "$sluice train run.yaml train.steps=100000 logging.log_every=1000000 & pid=$!\n"
         "while kill -0 $pid && ! [ -s runs/run/metrics.jsonl ]; do sleep 0.05; done\n" +
         then + "\nwait $pid";
}

}  // namespace sluice::app
