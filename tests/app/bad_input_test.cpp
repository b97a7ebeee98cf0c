/// The program as a user runs it, with input that is wrong and ground that gives way: the exit
/// code, what it says, and that it leaves nothing half-written.

#include <sys/stat.h>
#include <unistd.h>

#include "tests/app/program.h"

namespace sluice::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using BadInput = ProgramTest;

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

TEST_F(BadInput, ARunFileOfAnyNameGivesTheRunAName) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"my run.yaml", "my_run"}, {"auto.yaml", "run"}, {".yaml", "_yaml"}, {"123.yaml", "123"}};
  for (const auto& [file, name] : names) {
    write(file, kRunFile);
    const Ending ending = shell("$sluice train '" + file + "'");
    EXPECT_EQ(ending.code, 0) << ending.said;
    EXPECT_TRUE(exists("runs/" + name + "/final/model.safetensors")) << file;
  }
}

TEST_F(BadInput, AnOutputFolderMayEndInASeparator) {
  for (const char* end : {"/", "//", "/.", "/sub/.."}) {
    const Ending ending = train(std::string("'output_dir=runs/${name}") + end + "'");
    EXPECT_EQ(ending.code, 0) << ending.said;
    EXPECT_TRUE(exists("runs/run/final/model.safetensors")) << end;
    fs::remove_all(folder_ / "runs");
  }
}

TEST_F(BadInput, AnOutputFolderThatCannotEvenBeLookedAtIsNamed) {
  expect_refused_at_once(train("output_dir=" + std::string(300, 'x')), kConfig,
                         {"xxx", "File name too long", "output_dir"});
}

TEST_F(BadInput, ARunFileThatIsNotThereIsNamed) {
  expect_refused_at_once(shell("$sluice train nowhere.yaml"), kConfig,
                         {"nowhere.yaml", "No such file"});
}

TEST_F(BadInput, DataThatIsNotThereIsNamed) {
  expect_refused_at_once(train("data.train=nowhere.bin"), kConfig, {"nowhere.bin"});
}

TEST_F(BadInput, DataThatIsNoFileIsNamedForWhatItIsAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo.bin").c_str(), 0600), 0);
  fs::create_directory(folder_ / "corpus");
  for (const std::string key : {"data.train", "data.valid"}) {
    expect_refused_at_once(train(key + "=fifo.bin"), kConfig, {"fifo.bin is a FIFO"});
    expect_refused_at_once(train("'" + key + "=fifo.*'"), kConfig, {"'fifo.*'", "is a FIFO"});
    expect_refused_at_once(train(key + "=/dev/zero"), kConfig, {"/dev/zero is a device"});
    expect_refused_at_once(train(key + "=corpus"), kConfig,
                           {key + ": 'corpus'", "corpus is a folder", "/**"});
  }
}

TEST_F(BadInput, ARunFileThatIsNoFileIsNamedForWhatItIsAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo.yaml").c_str(), 0600), 0);
  expect_refused_at_once(shell("$sluice train fifo.yaml"), kConfig, {"fifo.yaml: a FIFO"});
  expect_refused_at_once(shell("$sluice train /dev/zero"), kConfig, {"/dev/zero: a device"});
  expect_refused_at_once(shell("$sluice train ."), kConfig, {".: a folder"});
}

TEST_F(BadInput, AnUnknownVerbIsAnsweredWithTheNearestKnownOne) {
  const auto refused = [&](const std::string& arguments, const std::vector<std::string>& words) {
    expect_refused_at_once(shell("$sluice " + arguments), kConfig, words);
  };
  refused("trian run.yaml", {"no verb 'trian'", "did you mean 'train'?"});
  refused("tets -R crown", {"no verb 'tets'", "did you mean 'test'?"});
  refused("test", {"the script ./sluice"});
  refused("config shw run.yaml", {"no verb 'shw'", "did you mean 'show'?", "sluice config --help"});
  refused("run.yaml", {"no verb 'run.yaml'", "there are train, eval, export, checkpoint, doctor"});
  refused("", {"no verb", "there are train, eval, export, checkpoint, doctor"});
  refused("config",
          {"no verb", "there are show, validate, init, import-deepspeed, schema, reference"});
  refused("train run.yaml --dry-rn", {"no option '--dry-rn'", "did you mean '--dry-run'?"});
  refused("train", {"FILE is required", "sluice train --help"});
  refused("config schema run.yaml", {"no argument 'run.yaml' is taken"});
}

TEST_F(BadInput, WhatCannotBePrintedIsAnError) {
  for (const char* verb :
       {"config schema", "config reference", "config show run.yaml", "train run.yaml --dry-run"}) {
    const Ending ending = shell(std::string("$sluice ") + verb + " >/dev/full");
    EXPECT_EQ(ending.code, kIo) << verb;
    EXPECT_THAT(ending.said, HasSubstr("standard output")) << verb;
  }
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
  expect_refused_at_once(train("'tiers.nvme.paths=[tokens.bin]'"), kConfig,
                         {"tiers.nvme.paths", "tokens.bin", "not a folder"});
}

TEST_F(BadInput, AnNvmePathWithoutPermissionIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::create_directory(folder_ / "locked");
  fs::permissions(folder_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  expect_refused_at_once(train("'tiers.nvme.paths=[locked/nvme]'"), kConfig,
                         {"tiers.nvme.paths", "locked", "Permission denied"});
}

TEST_F(BadInput, AGivenNameThatIsTakenIsRefusedAndLeftAlone) {
  fs::create_directories(folder_ / "runs/mine");
  expect_refused(train("name=mine"), kConfig, {"runs/mine exists", "another name"});
  EXPECT_TRUE(fs::is_empty(folder_ / "runs/mine"));
}

TEST_F(BadInput, MemoryOfferedAsNvmeIsRefused) {
  if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "no tmpfs at /dev/shm";
  const std::string in_memory = "/dev/shm/" + folder_.filename().string();
  expect_refused_at_once(
      train("tiers.nvme.allow_ram_path=false 'tiers.nvme.paths=[" + in_memory + "]'"), kConfig,
      {"tiers.nvme.paths", "tmpfs", "tiers.nvme.allow_ram_path"});
  EXPECT_FALSE(fs::exists(in_memory));
}

TEST_F(BadInput, AModelThatDoesNotFitSaysWhichTierAndBytesAndByHowMuch) {
  expect_refused_at_once(train("tiers.gpu.limit=40KiB"), kDoesNotFit,
                         {"gpu tier", "workspace", "tiers.gpu.limit", "short", "lower"});
  expect_refused_at_once(train("tiers.cpu.limit=100KiB"), kDoesNotFit,
                         {"cpu tier", "gradients", "tiers.cpu.limit", "short"});
  expect_refused_at_once(train("tiers.nvme.limit=100KiB"), kDoesNotFit,
                         {"nvme tier", "optimizer state", "tiers.nvme.limit", "short"});
}

/// The sequence is long, the weights are small: all but what the ops need beside it would fit.
TEST_F(BadInput, AWorkspaceThatDoesNotFitIsRefusedWithAllThatItLacks) {
  write_tokens(std::vector<std::uint16_t>(9000, 7));
  expect_refused_at_once(train("data.seq_len=4096 model.config.n_positions=4096 "
                               "tiers.gpu.limit=2500KiB"),
                         kDoesNotFit, {"gpu tier", "workspace 9.", "MiB", "short", "data.seq_len"});
}

TEST_F(BadInput, AddressesThatUlimitTakesAwayAreNotNeeded) {
  const Ending ending = shell("ulimit -v 8000000\n$sluice train run.yaml");
  EXPECT_EQ(ending.code, 0) << ending.said;
}

TEST_F(BadInput, SizesThatCannotBeCountedAreRefused) {
  expect_refused_at_once(train("model.config.n_positions=16777216 data.seq_len=16777216 "
                               "train.train_micro_batch_size_per_gpu=1073741824"),
                         kConfig, {"data.seq_len", "tokens"});
}

TEST_F(BadInput, KeepingEveryLayerNeedsItsWeightsOnTheDevice) {
  expect_refused_at_once(train("activation_checkpointing.policy=none tiers.gpu.unified=false"),
                         kConfig, {"policy: none", "offload_param.device: none"});
}

TEST_F(BadInput, Tf32NeedsABuildThatHasIt) {
  expect_refused_at_once(train("precision.compute=fp32 precision.tf32=true"), kConfig,
                         {"precision.tf32 is true", "built for host", "--preset cuda"});
}

TEST_F(BadInput, ATierBeyondWhatThereIsIsRefused) {
  expect_refused_at_once(train("tiers.cpu.limit=900TiB"), kDoesNotFit,
                         {"tiers.cpu.limit is 900.0 TiB", "available", "lower it"});
  expect_refused_at_once(train("tiers.gpu.limit=900TiB"), kDoesNotFit,
                         {"tiers.gpu.limit is 900.0 TiB", "lower it"});
  expect_refused_at_once(train("'tiers.nvme.paths=[disk]' tiers.nvme.limit=900TiB"), kDoesNotFit,
                         {"tiers.nvme.limit is 900.0 TiB", "free in tiers.nvme.paths"});
}

TEST_F(BadInput, FilesLargerThanUlimitAllowsAreRefused) {
  expect_refused_at_once(shell("ulimit -f 100\n$sluice train run.yaml"), kDoesNotFit,
                         {"ulimit -f"});
  // Weights would fit, a checkpoint would not.
  const std::string in_memory =
      "ulimit -f 250\n$sluice train run.yaml zero_optimization.offload_optimizer.device=cpu ";
  expect_refused_at_once(shell(in_memory), kDoesNotFit, {"ulimit -f"});
  const Ending ending = shell(in_memory + "checkpoint.every=null checkpoint.save_on_signal=false");
  EXPECT_EQ(ending.code, 0) << ending.said;
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

TEST_F(BadInput, TextAndTokensDoNotMix) {
  write("text.txt", std::string(400, '\1'));
  expect_refused_at_once(train("data.valid=text.txt"), kConfig,
                         {"tokens.bin is token ids", "text.txt is text", "data.format"});
}

TEST_F(BadInput, AnEvaluationTooLongToPlanIsRefused) {
  write("tokens.bin", std::string(4 << 20, '\0'));
  expect_refused_at_once(train("data.valid=tokens.bin eval.batches=1000000 --dry-run"), kConfig,
                         {"65535 micro-batches of 4 blocks", "65536 forwards", "eval.batches"});
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
                 "; code=\\$?; echo; find small; exit \\$code\"");
  }
};

TEST_F(SmallDisk, ADiskTooFullForTheStateIsRefused) {
  for (const char* dry : {"", " --dry-run"}) {
    const std::string paths = "'tiers.nvme.paths=[small]'";
    for (const Ending& ending : {train_on("128K", paths + dry),
                                 train_on("128K", paths + " tiers.nvme.limit=1GiB" + dry)}) {
      expect_refused_at_once(ending, kDoesNotFit, {"nvme", "tiers.nvme"});
      EXPECT_THAT(ending.said, testing::Not(HasSubstr("\nsmall/")));
    }
  }
}

TEST_F(SmallDisk, ADiskTooFullForTheFinalWeightsIsRefused) {
  for (const char* dry : {"", " --dry-run"}) {
    const Ending ending =
        train_on("1040K", std::string("output_dir=small/out "
                                      "zero_optimization.offload_optimizer.device=cpu") +
                              dry);
    expect_refused_at_once(ending, kDoesNotFit, {"needed for weights", "free", "output_dir"});
    EXPECT_THAT(ending.said, testing::Not(HasSubstr("\nsmall/")));
  }
}

TEST_F(SmallDisk, TheNvmeTierAndTheWeightsShareADisk) {
  const Ending ending =
      train_on("1150K", "output_dir=small/out 'tiers.nvme.paths=[small/a, b]' --dry-run");
  expect_refused_at_once(ending, kDoesNotFit, {"needed for weights and", "for the nvme tier"});
}

TEST_F(BadInput, ADryRunRefusesWhatAStartRefuses) {
  expect_refused_at_once(train("--dry-run 'tiers.nvme.paths=[tokens.bin]'"), kConfig,
                         {"tiers.nvme.paths", "not a folder"});
  expect_refused_at_once(train("--dry-run output_dir=tokens.bin/run"), kConfig,
                         {"tokens.bin", "Not a directory", "output_dir"});
}

TEST_F(BadInput, DataThatVanishesDuringTheRunEndsIt) {
  expect_refused(shell(in_the_middle("rm tokens.bin")), kIo, {"tokens.bin", "No such file"});
}

TEST_F(BadInput, DataThatBecomesAFifoDuringTheRunEndsIt) {
  expect_refused(shell(in_the_middle("mkfifo fifo; mv -f fifo tokens.bin")), kIo,
                 {"tokens.bin", "cannot be read"});
}

TEST_F(BadInput, DataCutShortDuringTheRunEndsIt) {
  expect_refused(shell(in_the_middle(": > tokens.bin")), kIo, {"tokens.bin", "ends at byte"});
}

}  // namespace
}  // namespace sluice::app
