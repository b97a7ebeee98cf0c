#include <fmt/core.h>

#include <cmath>
#include <filesystem>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/app/run_folder.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/stop_signal.h"
#include "engine/checkpoint/temporary_folder.h"
#include "engine/config/load.h"
#include "engine/train/session.h"

namespace sluice::app {

void evaluate(const std::string& file, const std::vector<std::string>& overrides) {
  const config::Config config = any_name(config::load(file, overrides, environment()), file);
  log::set_level(config.logging.level);
  for (const std::string& warning : config.warnings) log::warning(warning);
  // Where the nvme tier has no folder of its own it needs one for the moment, beside a run's.
  const checkpoint::TemporaryFolder folder(config.output_dir + ".eval");
  train::Job job = job_of(config, folder.path().string());
  SLUICE_CHECK(!job.data.valid.empty(), kConfig,
               fmt::format("{}: data.valid names no files to evaluate on", file));
  job.data.train = job.data.valid;  // nothing is trained on
  job.train.epochs.reset();
  job.train.tokens.reset();
  job.train.steps = 0;
  job.saves = false;
  warn_of_threads(config);
  train::Session session(job);
  warn_of_processors(job.compute);
  log::info(session.report());
  const double loss = session.evaluate();
  fmt::print("validation loss {:.6f} nats per token, perplexity {:.4f}, of {} samples of {}\n",
             loss, std::exp(loss), session.evaluation_samples(), session.valid_data()->samples());
}

}  // namespace sluice::app
