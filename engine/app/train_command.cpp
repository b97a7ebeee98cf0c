#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <optional>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/app/progress.h"
#include "engine/app/run_folder.h"
#include "engine/base/log.h"
#include "engine/base/stop_signal.h"
#include "engine/config/load.h"
#include "engine/data/bigram.h"
#include "engine/train/session.h"

namespace sluice::app {
namespace {

/// Counting bigrams reads all of the training data and keeps each pair that it meets, so only small
/// data of few tokens gets the comparison.
constexpr std::int64_t kBigramTokens = 64 << 20;
constexpr std::int64_t kBigramVocabulary = 1 << 10;

std::optional<double> bigram_baseline(const train::Session& session) {
  const data::Dataset* valid = session.valid_data();
  if (valid == nullptr || session.train_data().tokens() > kBigramTokens ||
      session.plan().setup.model->decoder.vocab > kBigramVocabulary) {
    return std::nullopt;
  }
  return data::bigram_loss(session.train_data(), *valid, session.evaluation_samples());
}

void summarise(const data::StepRecord& last, const std::optional<double>& bigram,
               const std::string& folder) {
  if (last.valid_loss && bigram) {
    const double below = *bigram - *last.valid_loss;
    log::info(fmt::format(
        "validation loss {:.4f}, a bigram count model of the same split {:.4f}: {:.4f} nats {} it",
        *last.valid_loss, *bigram, std::abs(below), below >= 0 ? "below" : "above"));
  }
  log::info(fmt::format("done: weights in {}/final", folder));
}

/// None when another run took the folder between the choice of its name and the start.
std::optional<int> run_named(config::Config config, DryRun dry_run) {
  const std::string& folder = config.output_dir;
  train::Job job = job_of(config, folder);
  std::optional<data::MetricsFile> metrics;
  data::StepRecord last;
  const Progress progress(config.logging);
  job.on_step = [&](const data::StepRecord& record) {
    metrics->append(record);
    last = record;
    progress.step(record);
  };
  job.stop = &stop_signal();

  train::Session session(job);
  if (dry_run == DryRun::kYes) {
    fmt::print("{}\n", session.report());
    return 0;
  }
  config.compute.threads = static_cast<unsigned>(session.numerics().threads);
  config.compute.loss_chunk = session.numerics().loss_chunk;
  if (claim_run_folder(config, describe_machine(session.numerics().threads, config.cpu_adam.isa)) ==
      Claim::kTaken)
    return std::nullopt;
  watch_stop_signals("stopping after the steps that are under way");
  log::to_file(folder + "/train.log");
  metrics.emplace(folder + "/metrics.jsonl", 0);
  log::info(session.report());
  const std::optional<double> bigram = bigram_baseline(session);
  if (session.run() == train::Outcome::kStopped) {
    const int signal = stop_signal();
    log::warning(fmt::format("stopped by {} after step {} of {}; nothing is saved",
                             signal == SIGINT ? "SIGINT" : "SIGTERM", last.step, session.steps()));
    return 128 + signal;
  }
  summarise(last, bigram, folder);
  return 0;
}

}  // namespace

int train(const std::string& file, const std::vector<std::string>& overrides, DryRun dry_run) {
  const config::Config config = config::load(file, overrides, environment());
  log::set_level(config.logging.level);
  for (const std::string& warning : config.warnings) log::warning(warning);
  while (true) {
    if (const auto code = run_named(choose_name(config, file), dry_run)) return *code;
  }
}

}  // namespace sluice::app
