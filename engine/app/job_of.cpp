#include "engine/app/job_of.h"

#include "engine/compute/model_ops.h"
#include "engine/shape/hf_config.h"
#include "engine/shape/presets.h"

namespace sluice::app {

train::Job job_of(const config::Config& config, const std::string& folder) {
  train::Job job;
  job.decoder = config.model.preset ? shape::find_preset(*config.model.preset)
                                    : shape::from_config(*config.model.config);
  job.seed = config.seed;
  job.data = config.data;
  job.train = config.train;
  job.eval = config.eval;
  job.profile = config.profile;
  job.optimizer = config.optimizer;
  job.scheduler = config.scheduler;
  job.homes = config.zero_optimization;
  job.grad_dtype = config.precision.grad_dtype == DType::kF32 ? schedule::GradDType::kF32
                                                              : schedule::GradDType::kAuto;
  job.compute = config.precision.compute;
  job.final_dtype = config.checkpoint.final_dtype;
  job.compute_threads = config.compute.threads;
  job.loss_chunk = config.compute.loss_chunk;
  job.execution = config.execution == config::Execution::kSerial ? train::Execution::kSerial
                                                                 : train::Execution::kOverlapped;
  job.tiers = config.tiers;
  job.aio = config.aio;
  job.cpu_adam = config.cpu_adam;
  job.folder = folder;
  job.make_compute = compute::on_libtorch();
  return job;
}

}  // namespace sluice::app
