#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/app/progress.h"
#include "engine/app/resume.h"
#include "engine/app/run_folder.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/stop_signal.h"
#include "engine/checkpoint/state_reader.h"
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

std::string name_of_signal(int number) {
  return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
}

/// Of a run that ended before its time.
std::string how_to_go_on(const std::string& file, const std::string& folder) {
  const std::string last = last_checkpoint(folder);
  if (last.empty()) return "nothing is saved";
  return fmt::format("saved: {}; `sluice train {} train.resume=auto` goes on from there", last,
                     file);
}

/// A file in the run's folder that asks for a checkpoint; it is removed.
bool take_trigger(const std::filesystem::path& file) {
  std::error_code none;
  return std::filesystem::remove(file, none);
}

/// Runs in its own folder; an error also says what is saved.
train::Outcome run_session(train::Session& session, const std::string& file,
                           const std::string& folder) {
  try {
    return session.run();
  } catch (const Error& e) {
    if (e.code == Errc::kCheckpoint || last_checkpoint(folder).empty()) throw;
    throw Error(e.code, fmt::format("{}\n{}", e.what(), how_to_go_on(file, folder)));
  }
}

/// None when another run took the folder between the choice of its name and the start.
std::optional<int> run_from(Start start, const std::string& file, const TrainFlags& flags) {
  config::Config& config = start.config;
  const std::string& folder = config.output_dir;
  checkpoint::Settings saved;
  if (!start.checkpoint.empty()) {
    saved = checkpoint::StateReader(start.checkpoint, config.aio).manifest().settings;
    restore_numerics(saved, config);
  }
  train::Job job = job_of(config, folder);
  job.resume = start.checkpoint;
  std::optional<data::MetricsFile> metrics;
  data::StepRecord last;
  const Progress progress(config.logging);
  job.on_step = [&](const data::StepRecord& record) {
    metrics->append(record);
    last = record;
    progress.step(record);
  };
  job.stop = &stop_signal();
  job.wants_checkpoint = [&] {
    const bool asked = take_trigger(folder + "/" + config.checkpoint.saves.trigger_file);
    return take_save_signal() || asked;
  };
  job.before_checkpoint = [&] { metrics->sync(); };

  train::Session session(job);
  compare_settings(saved, session.settings(), flags.change);
  if (flags.dry_run) {
    fmt::print("{}\n", session.report());
    return 0;
  }
  config.compute.threads = static_cast<unsigned>(session.numerics().threads);
  config.compute.loss_chunk = session.numerics().loss_chunk;
  if (!start.in_existing_folder()) {
    if (claim_run_folder(config) == Claim::kTaken) return std::nullopt;
    start.lock = RunLock::take(folder);
  }
  describe_run(config, describe_machine(session.numerics().threads, config.cpu_adam.isa));
  watch_stop_signals(config.checkpoint.saves.save_on_signal
                         ? "stopping after the steps that are under way, which are saved"
                         : "stopping after the steps that are under way");
  watch_save_signal();
  log::to_file(folder + "/train.log");
  const std::int64_t done = session.position().step;
  metrics.emplace(folder + "/metrics.jsonl", done);
  if (done > 0) log::info(fmt::format("{} goes on from {}", folder, start.checkpoint));
  log::info(session.report());
  const std::optional<double> bigram = bigram_baseline(session);
  const train::Outcome outcome = run_session(session, file, folder);
  if (outcome == train::Outcome::kDone) {
    summarise(last, bigram, folder);
    return 0;
  }
  const int signal = stop_signal();
  log::warning(fmt::format("stopped by {} after step {} of {}; {}", name_of_signal(signal),
                           std::max(last.step, done), session.steps(), how_to_go_on(file, folder)));
  constexpr int kSavedOnSignal = 75;
  return outcome == train::Outcome::kSaved ? kSavedOnSignal : 128 + signal;
}

}  // namespace

int train(const std::string& file, const std::vector<std::string>& overrides,
          const TrainFlags& flags) {
  const config::Config config = config::load(file, overrides, environment());
  log::set_level(config.logging.level);
  for (const std::string& warning : config.warnings) log::warning(warning);
  std::set<std::string> damaged;
  while (true) {
    Start start = choose_start(config, file, damaged);
    const std::string checkpoint = start.checkpoint;
    const bool may_pass_over = start.may_pass_over;
    try {
      if (const auto code = run_from(std::move(start), file, flags)) return *code;
    } catch (const Error& e) {
      if (e.code != Errc::kCheckpoint || !may_pass_over) throw;
      log::warning(fmt::format("{}; passed over", e.what()));
      damaged.insert(checkpoint);
    }
  }
}

}  // namespace sluice::app
