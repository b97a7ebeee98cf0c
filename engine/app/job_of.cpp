#include "engine/app/job_of.h"

#include <optional>

#include "engine/base/error.h"
#include "engine/compute/model_ops.h"
#include "engine/shape/hf_config.h"
#include "engine/shape/presets.h"

namespace sluice::app {

namespace {

/// bf16 is what auto comes to where it is allowed at all (config/checks.cpp).
schedule::GradDType grad_dtype_of(std::optional<DType> dtype) {
  if (!dtype) return schedule::GradDType::kAuto;
  switch (*dtype) {
    case DType::kF32:
      return schedule::GradDType::kF32;
    case DType::kBf16:
      return schedule::GradDType::kAuto;
  }
  throw Error(Errc::kLogic, "a gradient of an unknown type");
}

}  // namespace

train::Job job_of(const config::Config& config, const std::string& folder) {
  train::Job job;
  job.decoder = config.model.preset ? shape::find_preset(*config.model.preset)
                                    : shape::from_config(*config.model.config);
  job.seed = config.seed;
  job.data = config.data;
  job.train = config.train;
  job.eval = config.eval;
  job.limits = config.limits;
  job.profile = config.profile;
  job.optimizer = config.optimizer;
  job.scheduler = config.scheduler;
  job.homes = config.zero_optimization;
  job.grad_dtype = grad_dtype_of(config.precision.grad_dtype);
  job.compute = config.precision.compute;
  job.final_dtype = config.checkpoint.final_dtype;
  job.compute_threads = config.compute.threads;
  job.loss_chunk = config.compute.loss_chunk;
  job.execution = config.execution;
  job.tiers = config.tiers;
  job.aio = config.aio;
  job.cpu_adam = config.cpu_adam;
  job.folder = folder;
  job.make_compute = compute::on_libtorch();
  return job;
}

}  // namespace sluice::app
