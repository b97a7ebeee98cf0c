#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/app/run_folder.h"
#include "engine/base/log.h"
#include "engine/config/load.h"
#include "engine/data/bigram.h"
#include "engine/data/step_line.h"
#include "engine/train/session.h"

namespace sluice::app {
namespace {

/// Counting bigrams reads all of the training data, so only small data gets the comparison.
constexpr std::int64_t kBigramTokens = 64 << 20;

std::optional<double> bigram_baseline(const train::Session& session) {
  const data::Dataset* valid = session.valid_data();
  if (valid == nullptr || session.train_data().tokens() > kBigramTokens) return std::nullopt;
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

}  // namespace

int train(const std::string& file, const std::vector<std::string>& overrides, DryRun dry_run) {
  config::Config config = choose_name(config::load(file, overrides, environment()), file);
  log::set_level(config.logging.level);
  for (const std::string& warning : config.warnings) log::warning(warning);

  const std::string& folder = config.output_dir;
  train::Job job = job_of(config, folder);
  std::optional<data::MetricsFile> metrics;
  data::StepRecord last;
  job.on_step = [&](const data::StepRecord& record) {
    metrics->append(record);
    last = record;
    const bool shown = record.step % config.logging.log_every == 0 || record.valid_loss ||
                       record.skipped || record.step == record.steps;
    if (shown) log::info(data::step_line(record));
  };

  train::Session session(job);
  if (dry_run == DryRun::kYes) {
    fmt::print("{}\n", session.report());
    return 0;
  }
  config.compute.threads = static_cast<unsigned>(session.numbers().threads);
  config.compute.loss_chunk = session.numbers().loss_chunk;
  create_run_folder(config, describe_machine());
  log::to_file(folder + "/train.log");
  metrics.emplace(folder + "/metrics.jsonl", 0);
  log::info(session.report());
  const std::optional<double> bigram = bigram_baseline(session);
  session.run();
  summarise(last, bigram, folder);
  return 0;
}

}  // namespace sluice::app
