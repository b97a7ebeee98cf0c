#include "engine/config/first_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/config/write.h"

namespace sluice::config {
namespace {

using nlohmann::json;

/// Long enough to be worth a step, short enough to fit nearly everywhere.
constexpr std::int64_t kUsualLength = 1024;
/// Continuing with the rate of a first training undoes it.
constexpr double kRateOfPretrained = 2e-5;

constexpr const char* kNewRate = "This is a usual rate for a model that starts from random weights";
constexpr const char* kSmallRate =
    "The weights are trained already: a rate of a first training, 10 times as high and more, would "
    "undo what they know";

struct Choice {
  const char* key;
  json value;             ///< null: the default
  std::string more = {};  ///< said beside what the field table says
};

std::vector<Choice> choices(const FirstRun& run) {
  return {
      {"version", {}},
      {"name", {}},
      {"output_dir", {}},
      {"seed", {}},
      {"model.path", run.model},
      {"data.train", run.train},
      {"data.valid", run.valid},
      {"data.seq_len", std::min(kUsualLength, run.max_positions),
       fmt::format("The model has {} positions", run.max_positions)},
      {"train.epochs", 1},
      {"train.train_micro_batch_size_per_gpu", 1},
      {"train.gradient_accumulation_steps", run.micro_batches},
      {"eval.every", {}},
      {"precision.compute", {}},
      {"optimizer.lr", run.pretrained ? json(kRateOfPretrained) : json(),
       run.pretrained ? kSmallRate : kNewRate},
      {"optimizer.weight_decay", {}},
      {"scheduler.type", {}},
      {"scheduler.warmup_steps", {}},
      {"zero_optimization.offload_param.device", "auto"},
      {"zero_optimization.offload_gradient.device", "auto"},
      {"zero_optimization.offload_optimizer.device", "auto"},
      {"zero_optimization.offload_activation.device", "auto"},
      {"tiers.gpu.limit", {}},
      {"tiers.cpu.limit", {}},
      {"tiers.nvme.paths", {}},
      {"checkpoint.final_dtype", {}},
      {"logging.log_every", {}},
  };
}

}  // namespace

std::string first_run_file(const FirstRun& run) {
  std::vector<Line> lines;
  for (const Choice& choice : choices(run)) {
    const Field* field = find_field(choice.key);
    std::string comment = fmt::format("{} ({})", field->doc, field->takes);
    if (!choice.more.empty()) comment += ". " + choice.more;
    lines.push_back(
        {field, choice.value.is_null() ? field->write(Config{}) : choice.value, comment});
  }
  return comment_lines(
             "A run file to begin with. Say first whether and how it fits: sluice train FILE "
             "--dry-run.\nThese are the keys that people change; all of them: docs/config.md, or "
             "sluice config reference.\n") +
         "\n" + to_yaml(std::move(lines));
}

}  // namespace sluice::config
