/// Models that transformers made, trained as it trained them: the losses and gradient norms that
/// it got, on every tier. tests/fixtures/hf/README.md says how they came to be and why these
/// bounds.

#include <fstream>
#include <tuple>

#include "tests/app/records.h"

namespace sluice::app {
namespace {

constexpr const char* kFamilies[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};

struct Placement {
  const char* name;
  const char* arguments;
};
constexpr Placement kPlacements[] = {
    {"Device", "zero_optimization.offload_param.device=none"},
    {"Host", "zero_optimization.offload_param.device=cpu"},
    {"Drive",
     "zero_optimization.offload_param.device=nvme zero_optimization.offload_optimizer.device=nvme "
     "zero_optimization.offload_activation.device=nvme"},
};

constexpr const char* kCurveFile = R"(version: 1
name: curve
output_dir: runs/${name}
data: {seq_len: 64, shuffle: false}
train: {steps: 30, train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 2}
optimizer: {lr: 1.0e-3, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}
scheduler: {type: constant, warmup_steps: 0}
precision: {compute: fp32}
zero_optimization:
  offload_optimizer: {device: cpu}
  sub_group_size: 64KiB
tiers:
  gpu: {limit: 256MiB}
  cpu: {limit: 256MiB}
  nvme: {allow_ram_path: true}
checkpoint: {final_dtype: fp32}
)";

class Curves : public RecordsTest,
               public testing::WithParamInterface<std::tuple<const char*, Placement>> {};

TEST_P(Curves, AreThoseOfTransformers) {
  const auto& [family, placement] = GetParam();
  const std::string folder = std::string(FIXTURES "/hf/") + family;
  write("curve.yaml", kCurveFile);
  const Records records =
      started("curve", "curve.yaml model.path=" + folder + "/model data.train=" + folder +
                           "/tokens.bin " + placement.arguments);
  std::ifstream file(folder + "/reference.json");
  const auto steps = nlohmann::json::parse(file).at("steps");
  ASSERT_EQ(records.size(), steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double norm = steps[i].at("grad_norm");
    EXPECT_NEAR(records[i].at("loss"), steps[i].at("loss"), 1e-5) << "step " << i;
    EXPECT_NEAR(records[i].at("gnorm"), norm, 2e-4 * norm) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Curves,
                         testing::Combine(testing::ValuesIn(kFamilies),
                                          testing::ValuesIn(kPlacements)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace sluice::app
