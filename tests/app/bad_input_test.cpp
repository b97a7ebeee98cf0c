/// The program as a user runs it, with input that is wrong and ground that gives way: the exit
/// code, what it says, and that it leaves nothing half-written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// As in engine/base/error.cpp; they are a promise to scripts, so they are written out here.
constexpr int kConfig = 2;
constexpr int kDoesNotFit = 3;
constexpr int kIo = 4;
constexpr int kKilled = 128 + 9;

constexpr const char* kRunFile = R"(version: 1
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
class BadInput : public testing::Test {
 protected:
  BadInput() {
    std::string name = (fs::temp_directory_path() / "sluice-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    write("run.yaml", kRunFile);
    std::vector<std::uint16_t> tokens(4000);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i % 50);
    write_tokens(tokens);
  }
  ~BadInput() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
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

  bool exists(const std::string& name) const { return fs::exists(folder_ / name); }

  /// No final weights, no folder or file on its way to become something.
  void expect_nothing_half_written() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      EXPECT_NE(name, "final");
      EXPECT_THAT(name, testing::Not(HasSubstr(".partial")));
      EXPECT_THAT(name, testing::Not(HasSubstr(".swap")));
    }
  }
  void expect_refused(const Ending& ending, int code, const std::vector<std::string>& words) const {
    EXPECT_EQ(ending.code, code) << ending.said;
    EXPECT_THAT(ending.said, HasSubstr("error: "));
    for (const std::string& word : words) EXPECT_THAT(ending.said, HasSubstr(word));
    expect_nothing_half_written();
  }
  /// Found before the run's folder was made.
  void expect_refused_at_once(const Ending& ending, int code,
                              const std::vector<std::string>& words) const {
    expect_refused(ending, code, words);
    EXPECT_FALSE(exists("runs"));
  }

  fs::path folder_;
};

TEST_F(BadInput, TheRunFileOfTheseTestsWorks) {
  const Ending ending = train();
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_TRUE(exists("runs/run/final/model.safetensors"));
}

TEST_F(BadInput, AnUnknownKeyIsAnsweredWithTheNearestKnownOne) {
  rewrite("seq_len: 16", "seq_length: 16");
  expect_refused_at_once(train(), kConfig, {"run.yaml:6", "data.seq_length", "data.seq_len?"});
}

TEST_F(BadInput, AKeyGivenTwiceIsRefused) {
  rewrite("seq_len: 16", "seq_len: 16, seq_len: 8");
  expect_refused_at_once(train(), kConfig, {"run.yaml:6", "seq_len: duplicate key"});
}

TEST_F(BadInput, AUnitThatIsNoneIsRefused) {
  rewrite("sub_group_size: 64KiB", "sub_group_size: 64parsecs");
  expect_refused_at_once(train(), kConfig,
                         {"run.yaml:14", "zero_optimization.sub_group_size", "parsecs", "MiB"});
}

TEST_F(BadInput, ABareNumberForASizeShowsTheRightSpelling) {
  rewrite("sub_group_size: 64KiB", "sub_group_size: 65536");
  expect_refused_at_once(train(), kConfig,
                         {"run.yaml:14", "zero_optimization.sub_group_size", "65536B"});
}

TEST_F(BadInput, NamesThatAreNoFolderAreRefused) {
  for (const char* name : {"../up", "a/b", "..", "/tmp"}) {
    expect_refused_at_once(train(std::string("name=") + name), kConfig, {"name", name});
  }
}

TEST_F(BadInput, ARunFileThatIsNotThereIsNamed) {
  expect_refused_at_once(shell("$sluice train nowhere.yaml"), kConfig, {"nowhere.yaml"});
}

TEST_F(BadInput, DataThatIsNotThereIsNamed) {
  expect_refused_at_once(train("data.train=nowhere.bin"), kConfig, {"nowhere.bin"});
}

TEST_F(BadInput, AnOutputFolderThatCannotBeMadeIsNamed) {
  expect_refused_at_once(train("output_dir=tokens.bin/run"), kConfig,
                         {"tokens.bin", "Not a directory", "output_dir"});
}

TEST_F(BadInput, AnOutputFolderWithoutPermissionIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::create_directory(folder_ / "locked");
  fs::permissions(folder_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  expect_refused_at_once(train("output_dir=locked/run"), kConfig,
                         {"locked", "Permission denied", "output_dir"});
}

TEST_F(BadInput, AnNvmePathThatIsAFileIsRefused) {
  expect_refused(train("'tiers.nvme.paths=[tokens.bin]'"), kConfig,
                 {"tiers.nvme.paths", "tokens.bin", "not a folder"});
}

TEST_F(BadInput, AGivenNameThatIsTakenIsRefusedAndLeftAlone) {
  fs::create_directories(folder_ / "runs/mine");
  const Ending ending = train("name=mine");
  EXPECT_EQ(ending.code, kConfig) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("runs/mine"), HasSubstr("another name")));
  EXPECT_TRUE(fs::is_empty(folder_ / "runs/mine"));
}

TEST_F(BadInput, MemoryOfferedAsNvmeIsRefused) {
  if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "no tmpfs at /dev/shm";
  const Ending ending =
      train("tiers.nvme.allow_ram_path=false 'tiers.nvme.paths=[/dev/shm/sluice-test-nvme]'");
  expect_refused(ending, kConfig, {"tiers.nvme.paths", "tmpfs", "tiers.nvme.allow_ram_path"});
  EXPECT_FALSE(fs::exists("/dev/shm/sluice-test-nvme"));
}

TEST_F(BadInput, AModelThatDoesNotFitSaysWhichTierAndBytesAndByHowMuch) {
  expect_refused_at_once(train("tiers.gpu.limit=40KiB"), kDoesNotFit,
                         {"gpu tier", "workspace", "tiers.gpu.limit", "short", "lower"});
  expect_refused_at_once(train("tiers.cpu.limit=100KiB"), kDoesNotFit,
                         {"cpu tier", "gradients", "tiers.cpu.limit", "short"});
  expect_refused_at_once(train("tiers.nvme.limit=100KiB"), kDoesNotFit,
                         {"nvme tier", "optimizer state", "tiers.nvme.limit", "short"});
}

/// Refused by arithmetic: nobody waits for, or runs out of memory in, trying it.
TEST_F(BadInput, AMicroBatchFarTooLargeIsRefusedBeforeItIsTried) {
  expect_refused_at_once(
      train("train.train_micro_batch_size_per_gpu=1000000000"), kDoesNotFit,
      {"gpu tier", "activations", "short", "train.train_micro_batch_size_per_gpu"});
}

TEST_F(BadInput, TokenIdsBeyondTheVocabularyAreNamedWithFileAndOffset) {
  std::vector<std::uint16_t> tokens(4000, 7);
  tokens[1234] = 60000;
  write_tokens(tokens);
  expect_refused_at_once(train(), kIo, {"tokens.bin", "60000", "byte 2468", "vocabulary of 50"});
}

TEST_F(BadInput, EmptyCutAndShortTokenFilesAreRefused) {
  write("tokens.bin", "");
  expect_refused_at_once(train(), kIo, {"tokens.bin", "0 bytes"});
  write("tokens.bin", std::string(4001, '\1'));
  expect_refused_at_once(train(), kIo, {"tokens.bin", "4001 bytes", "uint16"});
  write_tokens(std::vector<std::uint16_t>(16, 1));
  expect_refused_at_once(train(), kConfig, {"tokens.bin", "17 tokens", "hold 16"});
}

TEST_F(BadInput, SequencesLongerThanThePositionsAreRefused) {
  expect_refused_at_once(train("data.seq_len=17"), kConfig, {"data.seq_len is 17", "16"});
}

/// Disks of a chosen size: a tmpfs in a mount namespace, which goes away with the program.
class SmallDisk : public BadInput {
 protected:
  void SetUp() override {
    if (shell("unshare -rm sh -c 'mount -t tmpfs none " + folder_.string() + "'").code != 0) {
      GTEST_SKIP() << "this machine lets nobody mount";
    }
    fs::create_directory(folder_ / "small");
  }
  Ending train_on(const std::string& size, const std::string& arguments) const {
    return shell("unshare -rm sh -c \"mount -t tmpfs -o size=" + size +
                 " none small && $sluice train run.yaml " + arguments +
                 "; code=\\$?; find small; exit \\$code\"");
  }
};

TEST_F(SmallDisk, ADiskTooFullForTheStateIsFoundBeforeStepOne) {
  for (const char* limit : {"", "tiers.nvme.limit=1GiB"}) {
    const Ending ending = train_on("128K", std::string("'tiers.nvme.paths=[small]' ") + limit);
    expect_refused(ending, kDoesNotFit, {"nvme", "240.0 KiB", "tiers.nvme.paths"});
    EXPECT_THAT(ending.said, testing::Not(HasSubstr("step 1/")));
    EXPECT_THAT(ending.said, testing::Not(HasSubstr("small/")));
  }
}

TEST_F(SmallDisk, ADiskTooFullForTheFinalWeightsIsFoundBeforeStepOne) {
  const Ending ending =
      train_on("32K", "output_dir=small/out zero_optimization.offload_optimizer.device=cpu");
  expect_refused(ending, kDoesNotFit, {"needed for weights", "free", "output_dir"});
  EXPECT_THAT(ending.said, testing::Not(HasSubstr("step 1/")));
  EXPECT_THAT(ending.said, testing::Not(HasSubstr("\nsmall/out/final")));
}

/// A run of many steps; `then` happens after its first one.
std::string in_the_middle(const std::string& then) {
  return "$sluice train run.yaml train.steps=100000 logging.log_every=1000000 & pid=$!\n"
         "while kill -0 $pid && ! [ -s runs/run/metrics.jsonl ]; do sleep 0.05; done\n" +
         then + "\nwait $pid";
}

TEST_F(BadInput, DataThatVanishesDuringTheRunEndsIt) {
  expect_refused(shell(in_the_middle("rm tokens.bin")), kIo, {"tokens.bin", "No such file"});
}

TEST_F(BadInput, DataCutShortDuringTheRunEndsIt) {
  expect_refused(shell(in_the_middle(": > tokens.bin")), kIo, {"tokens.bin", "ends at byte"});
}

TEST_F(BadInput, AKilledRunLeavesNothingInTheWayOfTheNext) {
  const Ending killed = shell("sluice=${sluice#timeout 300}\n" + in_the_middle("kill -9 $pid"));
  EXPECT_EQ(killed.code, kKilled) << killed.said;
  EXPECT_TRUE(fs::is_empty(folder_ / "runs/run/nvme"));
  const Ending next = train();
  EXPECT_EQ(next.code, 0) << next.said;
  EXPECT_TRUE(exists("runs/run-2/final/model.safetensors"));
  EXPECT_FALSE(exists("runs/run/final"));
}

}  // namespace
}  // namespace sluice::app
