/// What a run takes from the environment, and how it records it: env.json.

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/app/program.h"

namespace sluice::app {
namespace {

/// A cgroup that allows half a core; there() is false where this process may not make one.
class HalfACore {
 public:
  HalfACore() {
    const std::string name = "/sluice-test-" + std::to_string(::getpid());
    if (!make("/sys/fs/cgroup/cpu" + name, "cpu.cfs_quota_us", "50000")) {  // version 1
      make("/sys/fs/cgroup" + name, "cpu.max", "50000 100000");
    }
  }
  HalfACore(const HalfACore&) = delete;
  HalfACore& operator=(const HalfACore&) = delete;
  ~HalfACore() {
    if (there()) ::rmdir(folder_.c_str());
  }

  bool there() const { return !folder_.empty(); }
  std::string processes() const { return folder_ + "/cgroup.procs"; }

 private:
  bool make(const std::string& folder, const std::string& file, const std::string& quota) {
    std::error_code refused;
    if (!fs::create_directory(folder, refused)) return false;
    // The files of a cgroup are there as soon as it is: never one of our own.
    const std::string limit = folder + "/" + file;
    if (fs::exists(limit, refused) && (std::ofstream(limit) << quota).flush().good()) {
      folder_ = folder;
    } else {
      ::rmdir(folder.c_str());
    }
    return there();
  }

  std::string folder_;  ///< empty: none
};

/// In front of a command: the last of the processors that this process may use.
constexpr const char* kOneCore = "taskset -c $(taskset -cp $$ | grep -oE '[0-9]+$')";

class EnvironmentTest : public ProgramTest {
 protected:
  /// env.json of a run of one step. The variables of this test do not reach it.
  nlohmann::json recorded(const std::string& settings) const {
    const Ending ending =
        shell("unset MKL_CBWR ONEDNN_MAX_CPU_ISA ATEN_CPU_CAPABILITY\n" + settings +
              " $sluice train run.yaml train.steps=1 name=mine " + "output_dir=runs/mine");
    EXPECT_EQ(ending.code, 0) << ending.said;
    std::ifstream file(folder_ / "runs/mine/env.json");
    auto json = nlohmann::json::parse(file);
    fs::remove_all(folder_ / "runs");
    return json;
  }
};

TEST_F(EnvironmentTest, ARunRecordsWithWhatItsNumbersAreComputed) {
  rewrite("cpu_adam: {threads: 1}", "cpu_adam: {threads: 1, isa: scalar}");
  const nlohmann::json json = recorded("");
  EXPECT_FALSE(json.at("cpu").get<std::string>().empty());
  EXPECT_EQ(json.at("compute_threads"), 1);
  const nlohmann::json& paths = json.at("code_paths");
  EXPECT_THAT(paths.at("mkl").get<std::string>(), testing::AnyOf("AUTO", "none"));
  EXPECT_EQ(paths.at("onednn"), "ALL");
  EXPECT_FALSE(paths.at("aten").get<std::string>().empty());
  EXPECT_EQ(paths.at("cpu_adam"), "scalar");
}

TEST_F(EnvironmentTest, AVariableWithoutAValueIsNotSet) {
  const nlohmann::json paths = recorded("MKL_CBWR=").at("code_paths");
  EXPECT_THAT(paths.at("mkl").get<std::string>(), testing::AnyOf("AUTO", "none"));
}

TEST_F(EnvironmentTest, WhatTheUserHasSetWins) {
  const nlohmann::json paths =
      recorded("MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default")
          .at("code_paths");
  EXPECT_THAT(paths.at("mkl").get<std::string>(), testing::AnyOf("COMPATIBLE", "none"));
  EXPECT_EQ(paths.at("onednn"), "SSE41");
  EXPECT_EQ(paths.at("aten"), "DEFAULT");
}

TEST_F(EnvironmentTest, TheDoctorLooksAtTheMachineAndAtTheFoldersOfTheRunFile) {
  const Ending machine = shell("$sluice doctor");
  EXPECT_EQ(machine.code, 0) << machine.said;
  for (const char* row : {"processor", "memory", "io_uring", "device", "LibTorch", "this folder"}) {
    EXPECT_THAT(machine.said, testing::HasSubstr(row));
  }
  const Ending run = shell("$sluice doctor run.yaml");
  EXPECT_EQ(run.code, 0) << run.said;
  EXPECT_THAT(run.said, testing::HasSubstr("output_dir"));
  EXPECT_FALSE(exists("runs"));
  write("file", "");
  const Ending missing = shell("$sluice doctor run.yaml output_dir=file/run");
  EXPECT_EQ(missing.code, 3) << missing.said;
  EXPECT_THAT(missing.said, testing::HasSubstr("missing"));
}

TEST_F(EnvironmentTest, ARunTakesAThreadPerCoreThatItMayUse) {
  rewrite("compute: {threads: 1}", "compute: {threads: auto}");
  const nlohmann::json json = recorded(kOneCore);
  EXPECT_EQ(json.at("cores"), 1);
  EXPECT_EQ(json.at("compute_threads"), 1);
}

TEST_F(EnvironmentTest, ARunInACgroupOfHalfACoreTakesOneThreadAndSaysWhatItHas) {
  const HalfACore half;
  if (!half.there()) GTEST_SKIP() << "no cgroup can be made here";
  rewrite("compute: {threads: 1}", "compute: {threads: auto}");
  const Ending ending =
      shell("echo $$ >" + half.processes() +
            " && $sluice train run.yaml train.steps=1 name=mine output_dir=runs/mine");
  EXPECT_EQ(ending.code, 0) << ending.said;
  // Behind the processor's name, so that a line may end anywhere in it.
  EXPECT_THAT(ending.said, testing::ContainsRegex("allows 0\\.5;[ \n]raise[ \n]cpu\\."));
  EXPECT_EQ(nlohmann::json::parse(text_of("runs/mine/env.json")).at("compute_threads"), 1);
}

TEST_F(EnvironmentTest, MoreThreadsThanCoresAreSaidBeforeAnythingIsMeasuredWithThem) {
  const std::string sluice = std::string(kOneCore) + " $sluice ";
  const auto both = testing::AllOf(testing::HasSubstr("compute.threads: 2 threads on 1 core"),
                                   testing::HasSubstr("cpu_adam.threads: 3 threads on 1 core"));
  const std::string asked = " run.yaml data.valid=tokens.bin compute.threads=2 cpu_adam.threads=3";
  for (const std::string verb : {"train", "eval"}) {
    // It does not fit, so that nothing is measured.
    const Ending ending = shell(sluice + verb + asked + " tiers.cpu.limit=900TiB");
    EXPECT_EQ(ending.code, 3) << ending.said;
    EXPECT_THAT(ending.said, both);
  }
  const std::string found = shell(sluice + "doctor" + asked).said;
  EXPECT_THAT(found, testing::HasSubstr("2 threads on 1 core"));
  EXPECT_THAT(found, testing::HasSubstr("3 threads on 1 core"));
}

TEST_F(EnvironmentTest, ARunThatOpenMpHasBoundToOneCoreIsRefused) {
  for (const std::string variable :
       {"OMP_PROC_BIND=close", "OMP_PLACES=cores", "GOMP_CPU_AFFINITY=0"}) {
    const Ending ending = shell(variable + " $sluice train run.yaml");
    EXPECT_EQ(ending.code, 3) << variable << ": " << ending.said;
    EXPECT_THAT(ending.said, testing::HasSubstr("unset OMP_PROC_BIND"));
    EXPECT_FALSE(exists("runs")) << variable;
    EXPECT_EQ(shell(variable + " $sluice doctor").code, 3) << variable;
  }
  EXPECT_EQ(shell("OMP_PROC_BIND=false $sluice train run.yaml --dry-run").code, 0);
}

TEST_F(EnvironmentTest, ARunInSixteenBitsSaysWhereNothingMultipliesThem) {
  const std::string neither = "ONEDNN_MAX_CPU_ISA=SSE41 $sluice train run.yaml precision.compute=";
  for (const std::string how : {"bf16 --dry-run", "fp16 --dry-run", "bf16"}) {
    const Ending ending = shell(neither + how);
    EXPECT_EQ(ending.code, 0) << ending.said;
    EXPECT_THAT(ending.said, testing::HasSubstr("warning: " + how.substr(0, 4) + ": ")) << how;
  }
  EXPECT_THAT(text_of("runs/run/train.log"), testing::HasSubstr("bf16: "));
  for (const std::string type : {"bf16: ", "fp32: "}) {
    EXPECT_THAT(shell(neither + "fp32 --dry-run").said, testing::Not(testing::HasSubstr(type)));
  }
}

TEST_F(EnvironmentTest, ARefusalOfTheMachineNamesTheDoctor) {
  const Ending ending = train("tiers.cpu.limit=900TiB");
  EXPECT_EQ(ending.code, 3);
  EXPECT_THAT(ending.said, testing::HasSubstr("`sluice doctor`"));
  EXPECT_THAT(train("train.stepz=3").said, testing::Not(testing::HasSubstr("doctor")));
}

}  // namespace
}  // namespace sluice::app
