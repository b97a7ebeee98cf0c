#include "engine/config/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/field.h"
#include "engine/config/value.h"

namespace sluice::config {
namespace {

/// Of a micro-batch: with any hidden size, their bytes can be counted.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 36;

/// Knows where to point when two keys do not go together.
class Checker {
 public:
  Checker(const Config& config, const Places& places, const std::string& file)
      : config_(config), places_(places), file_(file) {}

  [[noreturn]] void refuse(std::string_view key, const std::string& reason) const {
    const auto place = places_.find(key);
    const std::string value = shown(find_field(key)->write(config_).dump());
    throw Error(Errc::kConfig,
                fmt::format("{} {}: {}: {}", place == places_.end() ? file_ : place->second, key,
                            value, reason));
  }

 private:
  const Config& config_;
  const Places& places_;
  const std::string& file_;
};

void check_model(const ModelOptions& model, const Checker& at) {
  std::vector<std::string_view> set;
  if (model.path) set.emplace_back("model.path");
  if (model.config) set.emplace_back("model.config");
  if (model.preset) set.emplace_back("model.preset");
  if (set.empty()) {
    at.refuse("model.preset", "no model is named; set model.path, model.preset or model.config");
  }
  if (set.size() > 1) at.refuse(set[1], fmt::format("{} is set too; keep one of them", set[0]));
  if (model.init == ModelInit::kPretrained && !model.path) {
    at.refuse("model.init", fmt::format("{} names no weights; set model.path", set[0]));
  }
}

void check_length(const train::TrainOptions& train, const Checker& at) {
  std::vector<std::string_view> set;
  if (train.steps) set.emplace_back("train.steps");
  if (train.epochs) set.emplace_back("train.epochs");
  if (train.tokens) set.emplace_back("train.tokens");
  if (set.size() > 1) {
    at.refuse(set[1],
              fmt::format("{} is set too; keep one length of the run (null unsets a key)", set[0]));
  }
}

/// total / part, which must come out even.
std::int64_t divided(std::int64_t total, std::int64_t part, std::string_view part_key,
                     const Checker& at) {
  if (total % part != 0) {
    at.refuse(
        "train.train_batch_size",
        fmt::format("{} / {} {} = {:.6g} is no whole number; write {} or {}, or change {}", total,
                    part_key, part, static_cast<double>(total) / static_cast<double>(part),
                    std::max(part, total - total % part), total - total % part + part, part_key));
  }
  return total / part;
}

void settle_batch(train::TrainOptions& train, const Checker& at) {
  auto& micro = train.train_micro_batch_size_per_gpu;
  auto& micros = train.gradient_accumulation_steps;
  auto& batch = train.train_batch_size;
  if (batch && micro && !micros) {
    micros = divided(*batch, *micro, "train_micro_batch_size_per_gpu", at);
  } else if (batch && micros && !micro) {
    micro = divided(*batch, *micros, "gradient_accumulation_steps", at);
  } else if (batch && !micro) {
    micro = 1;
    micros = batch;
  }
  micro = micro.value_or(1);
  micros = micros.value_or(1);
  const std::int64_t product = *micro * *micros;  // both at most 2^30
  const std::string sum =
      fmt::format("train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} = {}", *micro,
                  *micros, product);
  if (batch && *batch != product) {
    at.refuse("train.train_batch_size",
              fmt::format("{}; write {}, or leave out one of the three", sum, product));
  }
  if (product > kMostBatch) {
    at.refuse("train.gradient_accumulation_steps",
              fmt::format("{} is more than {} samples per step", sum, kMostBatch));
  }
  batch = product;
}

void check_tokens(const Config& c, const Checker& at) {
  const std::int64_t tokens = *c.train.train_micro_batch_size_per_gpu * c.data.seq_len;
  if (tokens > kMostTokens) {
    at.refuse("data.seq_len",
              fmt::format("a micro-batch of {} such sequences is more than {} tokens",
                          *c.train.train_micro_batch_size_per_gpu, kMostTokens));
  }
}

void check_precision(const Config& c, const Checker& at) {
  const DType compute = c.precision.compute;
  const train::LossScaleOptions& scale = c.precision.loss_scale;
  if (scale.fixed && compute != DType::kF16) {
    at.refuse("precision.loss_scale",
              fmt::format("precision.compute is {}, whose gradients need none; write auto",
                          name_of(compute)));
  }
  if (c.precision.tf32 && compute != DType::kF32) {
    at.refuse("precision.tf32", fmt::format("precision.compute is {}, whose products are not of "
                                            "fp32; write false",
                                            name_of(compute)));
  }
  if (scale.least > std::int64_t{1} << scale.initial_power) {
    at.refuse("precision.min_loss_scale",
              fmt::format("precision.initial_scale_power {} begins below it", scale.initial_power));
  }
  const std::optional<DType> gradient = c.precision.grad_dtype;
  if (!gradient || *gradient == DType::kF32) return;
  if (*gradient != compute) {
    at.refuse("precision.grad_dtype",
              fmt::format("precision.compute is {0} and so are its gradients; write auto, {0} or "
                          "fp32",
                          name_of(compute)));
  }
  if (*c.train.gradient_accumulation_steps > 1) {
    at.refuse("precision.grad_dtype",
              fmt::format("{} micro-batches are summed per step, which takes fp32; write auto or "
                          "fp32, or train.gradient_accumulation_steps 1",
                          *c.train.gradient_accumulation_steps));
  }
}

void check_update(const Config& c, const Checker& at) {
  if (c.optimizer.update != schedule::Update::kArriving) return;
  const bool scaled = c.precision.compute == DType::kF16;
  const auto refuse = [&](std::string_view why, std::string_view out) {
    at.refuse("optimizer.update",
              fmt::format("{}, for which every gradient of a step must be there "
                          "before its first update; write {}, or end",
                          why, out));
  };
  using train::NeedsAll;
  switch (train::needs_all_gradients(c.train,
                                     scaled ? c.precision.loss_scale : train::LossScaleOptions{})) {
    case NeedsAll::kNothing:
      return;
    case NeedsAll::kOneNorm:
      return refuse("train.gradient_clipping is by one norm of all gradients",
                    fmt::format("train.clip_scope: segment or train.gradient_clipping: null{}",
                                c.train.on_nonfinite == train::OnNonFinite::kSkip
                                    ? ", with train.on_nonfinite: stop"
                                    : ""));
    case NeedsAll::kSkippedSteps:
      return refuse("train.on_nonfinite: skip leaves all weights as they were",
                    "train.on_nonfinite: stop");
    case NeedsAll::kLossScale:
      return refuse("precision.loss_scale: auto skips the steps that overflow",
                    "a fixed precision.loss_scale");
  }
}

/// A run removes it: it may be nothing that the run writes.
void check_trigger(const Config& c, const Checker& at) {
  constexpr std::array<std::string_view, 9> kOurs = {
      "lock",  "metrics.jsonl", "train.log", "config.resolved.yaml", "env.json", "checkpoints",
      "final", "nvme",          "trace.json"};
  if (std::ranges::find(kOurs, c.checkpoint.saves.trigger_file) != kOurs.end()) {
    at.refuse("checkpoint.trigger_file", "a run has a file of that name; choose another");
  }
}

void warn(Config& c) {
  if (c.train.clip_scope == train::ClipScope::kSegment && !c.train.gradient_clipping) {
    c.warnings.emplace_back(
        "train.clip_scope: segment clips nothing, since train.gradient_clipping is null");
  }
  if (c.optimizer.update != schedule::Update::kDelayed) {
    const auto nothing_late = [&](const char* key) {
      c.warnings.push_back(
          fmt::format("{} does nothing, since optimizer.update is not delayed", key));
    };
    if (c.eval.drain) nothing_late("eval.drain: true");
    if (c.optimizer.delayed_update_start != train::OptimizerOptions().delayed_update_start) {
      nothing_late("optimizer.delayed_update_start");
    }
  }
  const auto* warmup = std::get_if<std::int64_t>(&c.scheduler.warmup_steps);
  if (warmup && c.train.steps && *c.train.steps > 0 && *warmup > *c.train.steps) {
    c.warnings.push_back(fmt::format(
        "scheduler.warmup_steps {} is more than train.steps {}: the learning rate never "
        "reaches optimizer.lr",
        *warmup, *c.train.steps));
  }
}

}  // namespace

void check_together(Config& config, const Places& places, const std::string& file) {
  const Checker at(config, places, file);
  check_model(config.model, at);
  check_length(config.train, at);
  settle_batch(config.train, at);
  check_tokens(config, at);
  check_precision(config, at);
  check_update(config, at);
  check_trigger(config, at);
  warn(config);
}

}  // namespace sluice::config
