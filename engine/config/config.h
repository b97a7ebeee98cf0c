/// A whole run: the run file as structs. The YAML path is the member path, but for the devices:
/// zero_optimization.offload_param.device is config.zero_optimization.offload_param.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_adam/options.h"
#include "engine/base/dtype.h"
#include "engine/base/log.h"
#include "engine/data/options.h"
#include "engine/memory/options.h"
#include "engine/schedule/options.h"
#include "engine/train/options.h"
#include "nvme/options.h"

namespace sluice::config {

enum class ModelInit : std::uint8_t { kPretrained, kRandom };

/// After a load exactly one of `path`, `config` and `preset` is set.
struct ModelOptions {
  std::optional<std::string> path;       ///< a Hugging Face folder, or a config.json alone
  std::optional<nlohmann::json> config;  ///< the keys of a Hugging Face config.json
  std::optional<std::string> preset;
  std::optional<ModelInit> init;  ///< nullopt = auto: kPretrained where `path` is a folder
};

struct PrecisionOptions {
  DType compute = DType::kBf16;
  std::optional<DType> grad_dtype;                            ///< nullopt = auto
  train::LossScaleOptions loss_scale{.fixed = std::nullopt};  ///< of fp16
  bool tf32 = false;                                          ///< of fp32
};

/// Part of a run's numbers: recorded, and restored with a checkpoint.
struct ComputeOptions {
  std::optional<unsigned> threads;         ///< nullopt = auto: the cores
  std::optional<std::int64_t> loss_chunk;  ///< nullopt = auto
  std::optional<std::int64_t> mlp_chunk;   ///< nullopt = auto
};

struct CheckpointOptions {
  DType final_dtype = DType::kBf16;
  Bytes shard_size = 5_GiB;
  train::SaveOptions saves;
};

enum class Progress : std::uint8_t {
  kAuto,  ///< where stdout is a terminal
  kTrue,
  kFalse
};

struct LoggingOptions {
  std::int64_t log_every = 1;  ///< steps
  log::Level level = log::Level::kInfo;
  Progress progress = Progress::kAuto;
};

/// What a run's name is made of; it begins with neither '.' nor '-'.
inline constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

struct Config {
  std::int64_t version = 1;
  std::optional<std::string> name;          ///< nullopt = auto: the run picks one, see with_name
  std::string output_dir = "runs/${name}";  ///< ${name} stays in paths while the name is auto
  std::uint64_t seed = 1337;
  ModelOptions model;
  data::DataOptions data;
  train::TrainOptions train;    ///< after a load all three batch sizes are set
  std::string resume = "auto";  ///< or never, must, a folder: train.resume
  train::EvalOptions eval;
  PrecisionOptions precision;
  train::OptimizerOptions optimizer;
  data::SchedulerOptions scheduler;
  train::Execution execution = train::Execution::kOverlapped;
  ComputeOptions compute;
  schedule::Options zero_optimization;
  memory::Options tiers;
  nvme::Options aio;
  cpu_adam::Options cpu_adam;
  train::LimitOptions limits;
  train::WatchdogOptions watchdog;
  CheckpointOptions checkpoint;
  LoggingOptions logging;
  train::ProfileOptions profile;

  std::vector<std::string> warnings;  ///< for the log; no key of the file
};

}  // namespace sluice::config
