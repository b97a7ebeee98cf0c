#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
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
#include "engine/tensor/process.h"
#include "engine/train/session.h"
#include "gpu/device.h"

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
  for (const auto& [known, name] :
       {std::pair{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}}) {
    if (number == known) return name;
  }
  return fmt::format("signal {}", number);
}

/// The command line of a run.
struct Command {
  const std::string& file;
  const std::vector<std::string>& overrides;
  const TrainFlags& flags;
};

/// As a shell takes it for one word.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/=,:+@%";
  if (word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Of a run that ended before its time: what is saved, and the command that goes on from it.
std::string how_to_go_on(const Command& command, const std::string& last) {
  if (last.empty()) return "nothing is saved";
  std::string words = quoted(command.file);
  for (const std::string& word : command.overrides) {
    if (!word.starts_with("train.resume=")) words += " " + quoted(word);
  }
  return fmt::format("saved: {}; this goes on from there:\n  sluice train {} train.resume=auto{}",
                     last, words, command.flags.change ? " --change" : "");
}

/// A file in the run's folder that asks for a checkpoint; it is removed.
bool take_trigger(const std::filesystem::path& file) {
  std::error_code none;
  return std::filesystem::remove(file, none);
}

/// Runs in its own folder; an error also says what is saved: `last`, which changes meanwhile.
train::Outcome run_session(train::Session& session, const Command& command,
                           const std::string& last) {
  try {
    return session.run();
  } catch (const Error& e) {
    if (e.code == Errc::kCheckpoint || last.empty()) throw;
    throw Error(e.code, fmt::format("{}\n{}", e.what(), how_to_go_on(command, last)), e.where);
  }
}

/// Where a run tells of its steps, and who asks it for checkpoints.
struct Told {
  const config::Config& config;
  Progress progress{config.logging};
  std::optional<data::MetricsFile> metrics{};
  data::StepRecord last{};
  std::string saved{};  ///< the newest checkpoint of the run's folder that is known to be whole

  void connect(train::Job& job) {
    job.on_step = [this](const data::StepRecord& record) {
      metrics->append(record);
      last = record;
      progress.step(record);
    };
    job.stop = &stop_signal();
    job.wants_checkpoint = [this] {
      const auto& name = config.checkpoint.saves.trigger_file;
      const bool asked = take_trigger(config.output_dir + "/" + name);
      return take_save_signal() || asked;
    };
    job.before_checkpoint = [this] { metrics->sync(); };
    job.on_checkpoint = [this](const std::string& folder) { saved = folder; };
  }
};

/// The run's folder is ours from here on. False: another run has just made or taken it.
bool take_folder(Start& start, const train::Session& session) {
  const std::string& folder = start.config.output_dir;
  if (!start.existing) {
    if (claim_run_folder(start.config) == Claim::kTaken) return false;
    start.lock = RunLock::take(folder);
    if (!start.lock) return false;  // it found the folder before that, and goes on in it
  }
  remove_leftovers(folder);
  start.config.compute.threads = static_cast<unsigned>(session.numerics().threads);
  start.config.compute.loss_chunk = session.numerics().loss_chunk;
  start.config.compute.mlp_chunk = session.numerics().mlp_chunk;
  describe_run(start.config,
               describe_machine(session.numerics().threads, start.config.cpu_adam.isa));
  return true;
}

/// None when another run took the folder between the choice of its name and the start.
std::optional<int> run_from(Start& start, const Command& command,
                            const std::set<std::string>& damaged) {
  config::Config& config = start.config;
  const std::string& folder = config.output_dir;
  checkpoint::Settings saved;
  if (!start.checkpoint.empty()) {
    saved = checkpoint::read_manifest(start.checkpoint).settings;
    restore_numerics(saved, config);
  }
  train::Job job = job_of(config, folder);
  job.settings.merge(processor_settings());
  job.resume = start.checkpoint;
  for (const std::string& folder_of : damaged) {
    if (start.existing) job.damaged.insert(std::filesystem::path(folder_of).filename().string());
  }
  Told told{config};
  if (start.existing) told.saved = start.checkpoint;
  told.connect(job);
  train::Session session(job);
  compare_settings(saved, session.settings(), command.flags.change);
  if (command.flags.dry_run) {
    warn_of_processors(job.compute);
    fmt::print("{}\n", session.report());
    return 0;
  }
  if (!take_folder(start, session)) return std::nullopt;
  watch_stop_signals(config.checkpoint.saves.save_on_signal
                         ? "stopping after the steps that are under way, which are saved"
                         : "stopping after the steps that are under way");
  log::to_file(folder + "/train.log");
  const std::int64_t done = session.position().step;
  told.metrics.emplace(folder + "/metrics.jsonl", done);
  if (done > 0) log::info(fmt::format("{} goes on from {}", folder, start.checkpoint));
  if (start.existing && told.metrics->last_step() != done) {
    log::warning(
        fmt::format("{}/metrics.jsonl ends with step {}, the checkpoint is of step {}: the "
                    "lines between are missing",
                    folder, told.metrics->last_step(), done));
  }
  warn_of_processors(job.compute);
  log::info(session.report());
  const std::optional<double> bigram = bigram_baseline(session);
  const train::Outcome outcome = run_session(session, command, told.saved);
  if (outcome == train::Outcome::kDone) {
    summarise(told.last, bigram, folder);
    return 0;
  }
  const int signal = stop_signal();
  log::warning(fmt::format("stopped by {} after step {} of {}; {}", name_of_signal(signal),
                           std::max(told.last.step, done), session.steps(),
                           how_to_go_on(command, told.saved)));
  constexpr int kSavedOnSignal = 75;
  return outcome == train::Outcome::kSaved ? kSavedOnSignal : 128 + signal;
}

}  // namespace

int train(const std::string& file, const std::vector<std::string>& overrides,
          const TrainFlags& flags) {
  const config::Config config = config::load(file, overrides, environment());
  log::set_level(config.logging.level);
  for (const std::string& warning : config.warnings) log::warning(warning);
  warn_of_threads(config);  // once, however many checkpoints are passed over
  watch_save_signal();  // from here on: before there is anything to save it must not end the run
  std::set<std::string> damaged;
  while (true) {
    Start start = choose_start(config, file, damaged, flags.dry_run ? Take::kNo : Take::kYes);
    try {
      if (const auto code = run_from(start, {file, overrides, flags}, damaged)) return *code;
    } catch (const Error& e) {
      if (e.code != Errc::kCheckpoint || !start.may_pass_over) throw;
      log::warning(fmt::format("{}; passed over", e.what()));
      damaged.insert(start.checkpoint);
      // Ours, just made, and of no step: its name is needed again.
      if (!start.existing && start.lock) std::filesystem::remove_all(start.config.output_dir);
    }
  }
}

}  // namespace sluice::app
