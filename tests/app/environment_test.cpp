/// What a run takes from the environment, and how it records it: env.json.

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"

namespace sluice::app {
namespace {

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

}  // namespace
}  // namespace sluice::app
