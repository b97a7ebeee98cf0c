#include "engine/app/job_of.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "engine/base/error.h"
#include "engine/checkpoint/companions.h"
#include "engine/compute/model_ops.h"
#include "engine/config/write.h"
#include "engine/shape/hf_config.h"
#include "engine/shape/presets.h"

namespace sluice::app {

namespace {

/// The type of compute is what auto comes to where it is allowed at all (config/checks.cpp).
schedule::GradDType grad_dtype_of(std::optional<DType> dtype) {
  return dtype == DType::kF32 ? schedule::GradDType::kF32 : schedule::GradDType::kAuto;
}

/// Sets the model, and its weights where the run begins with them.
void name_model(const config::ModelOptions& model, train::Job& job) {
  if (model.preset) {
    job.decoder = shape::find_preset(*model.preset);
    return;
  }
  if (model.config) {
    job.decoder = shape::from_config(*model.config);
    return;
  }
  using config::ModelInit;
  std::error_code why;
  const bool folder = std::filesystem::is_directory(*model.path, why);
  SLUICE_CHECK(!why, kConfig,
               fmt::format("model.path: {}: {}; name a folder with config.json and safetensors, or "
                           "a config.json alone",
                           *model.path, why.message()));
  job.companions = checkpoint::read_companions(*model.path);
  job.decoder = shape::from_config(*job.companions.config, fmt::format("{}: config", *model.path));
  const ModelInit usual = folder ? ModelInit::kPretrained : ModelInit::kRandom;
  if (model.init.value_or(usual) == ModelInit::kRandom) return;
  SLUICE_CHECK(folder, kConfig,
               fmt::format("model.init: pretrained, and model.path {} is no folder with weights",
                           *model.path));
  job.weights = *model.path;
}

}  // namespace

train::Job job_of(const config::Config& config, const std::string& folder) {
  train::Job job;
  name_model(config.model, job);
  job.seed = config.seed;
  job.data = config.data;
  job.train = config.train;
  job.eval = config.eval;
  job.limits = config.limits;
  job.watchdog = config.watchdog;
  job.profile = config.profile;
  job.optimizer = config.optimizer;
  job.scheduler = config.scheduler;
  job.homes = config.zero_optimization;
  job.tf32 = config.precision.tf32;
  job.grad_dtype = grad_dtype_of(config.precision.grad_dtype);
  job.compute = config.precision.compute;
  if (job.compute == DType::kF16) job.loss_scale = config.precision.loss_scale;
  job.final_dtype = config.checkpoint.final_dtype;
  job.shard_size = config.checkpoint.shard_size;
  job.checkpoint = config.checkpoint.saves;
  job.settings = config::values_of(config);
  job.version = SLUICE_VERSION;
  job.compute_threads = config.compute.threads;
  job.loss_chunk = config.compute.loss_chunk;
  job.mlp_chunk = config.compute.mlp_chunk;
  job.execution = config.execution;
  job.tiers = config.tiers;
  job.aio = config.aio;
  job.cpu_adam = config.cpu_adam;
  job.folder = folder;
  job.make_compute = compute::on_libtorch();
  return job;
}

}  // namespace sluice::app
