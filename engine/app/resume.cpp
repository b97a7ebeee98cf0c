#include "engine/app/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoints.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

/// Keys, or sections with a dot, that do not show in the bits of a step.
constexpr std::array<std::string_view, 16> kFree = {
    "version",   "name",        "output_dir",   "zero_optimization.",
    "tiers.",    "aio.",        "cpu_adam.",    "activation_checkpointing.",
    "execution", "checkpoint.", "logging.",     "profile.",
    "limits.",   "watchdog.",   "train.resume", "model."};
// The model itself is compared: StateReader::check_model.
/// Those that every step of the run rests on.
constexpr std::array<std::string_view, 9> kFrozen = {"precision.",
                                                     "compute.",
                                                     "seed",
                                                     "optimizer.type",
                                                     "data.seq_len",
                                                     "data.shuffle",
                                                     "train.train_micro_batch_size_per_gpu",
                                                     "train.gradient_accumulation_steps",
                                                     "train.train_batch_size"};

bool is_one_of(std::string_view key, auto keys) {
  return std::ranges::any_of(keys, [&](std::string_view one) {
    return one.ends_with('.') ? key.starts_with(one) : key == one;
  });
}

/// Nor does this: but for delayed updates, when the optimizer works changes no bit. Values are
/// JSON.
bool only_order(std::string_view key, std::string_view before, std::string_view now) {
  constexpr std::string_view kDelayed = "\"delayed\"";
  return key == "optimizer.update" && before != kDelayed && now != kDelayed;
}

fs::path checkpoints_of(const fs::path& run) {
  return run / "checkpoints";
}

bool finished(const fs::path& run) {
  std::error_code none;
  return fs::exists(run / "final", none);
}

/// Complete ones of these, in their order.
std::vector<std::string> complete(const std::vector<checkpoint::Found>& there) {
  std::vector<std::string> all;
  for (const auto& found : there) {
    if (found.complete) {
      all.push_back(found.folder.string());
    } else {
      log::warning(fmt::format("{}: is no complete checkpoint (no COMPLETE); passed over",
                               found.folder.string()));
    }
  }
  return all;
}

std::optional<std::string> newest_but(const std::vector<std::string>& all,
                                      const std::set<std::string>& damaged) {
  const auto whole =
      std::ranges::find_if(all, [&](const std::string& path) { return !damaged.contains(path); });
  return whole == all.end() ? std::nullopt : std::optional(*whole);
}

[[noreturn]] void refuse_all_damaged(const fs::path& run, std::size_t count) {
  throw Error(Errc::kCheckpoint,
              fmt::format("{}: none of its {} checkpoints is whole (each was named above); "
                          "train.resume=never begins anew, in another folder",
                          checkpoints_of(run).string(), count));
}

/// A new run from a folder that was named.
Start from_folder(const config::Config& config, const std::string& file,
                  const std::set<std::string>& damaged) {
  const fs::path named = config.resume;
  std::error_code none;
  SLUICE_CHECK(fs::is_directory(named, none), kConfig,
               fmt::format("train.resume: {} is no folder; name a checkpoint, a run, or one of "
                           "auto, never, must",
                           config.resume));
  const bool run = fs::is_directory(checkpoints_of(named), none);
  const std::vector<std::string> all =
      run ? complete(checkpoint::list_checkpoints(checkpoints_of(named)))
          : std::vector<std::string>{named.string()};
  SLUICE_CHECK(!all.empty(), kCheckpoint,
               fmt::format("train.resume: {} has no complete checkpoint", named.string()));
  const auto newest = newest_but(all, damaged);
  if (!newest) refuse_all_damaged(named, all.size());
  return {choose_name(config, file), *newest, false, std::nullopt, run};
}

/// In the folder of a run that is not done, if that can be: from its newest checkpoint that is
/// whole, or from the beginning where it ended before it had one. nullopt: it is none of ours, is
/// done, at work, or (`begun` only) has no checkpoint.
std::optional<Start> in_folder(const config::Config& named, const std::set<std::string>& damaged,
                               bool begun, Take take) {
  const fs::path run = named.output_dir;
  std::error_code none;
  if (!fs::is_regular_file(run / kLockName, none)) return std::nullopt;
  // First the lock: what is seen without it may change.
  auto lock = take == Take::kYes ? RunLock::take(run.string()) : std::nullopt;
  if (take == Take::kYes && !lock) {
    log::warning(fmt::format("{}: another process is at work there", run.string()));
    return std::nullopt;
  }
  if (finished(run)) return std::nullopt;
  const auto there = checkpoint::list_checkpoints(checkpoints_of(run));
  const std::vector<std::string> all = complete(there);
  if (all.empty() && (begun || !there.empty())) return std::nullopt;
  const auto newest = newest_but(all, damaged);
  if (!newest && !all.empty()) refuse_all_damaged(run, all.size());
  return Start{named, newest.value_or(""), true, std::move(lock), true};
}

}  // namespace

Start choose_start(const config::Config& config, const std::string& file,
                   const std::set<std::string>& damaged, Take take) {
  if (config.resume == "never") return {choose_name(config, file), {}, false, std::nullopt, false};
  const bool must = config.resume == "must";
  if (config.resume != "auto" && !must) return from_folder(config, file, damaged);
  const std::vector<config::Config> runs = existing_runs(config, file);
  for (const config::Config& named : runs) {
    // Of counted names a new one is taken, rather than one that never got far.
    if (auto start = in_folder(named, damaged, must || !config.name, take)) {
      return std::move(*start);
    }
  }
  SLUICE_CHECK(
      !must, kCheckpoint,
      runs.empty()
          ? std::string("train.resume is must, and there is no run of this name")
          : fmt::format("train.resume is must, and {} is done (its final/ is there), is at "
                        "work, or has no complete checkpoint",
                        runs.front().output_dir));
  return {choose_name(config, file), {}, false, std::nullopt, false};
}

std::string last_checkpoint(const std::string& run_folder) {
  for (const auto& found : checkpoint::list_checkpoints(checkpoints_of(run_folder))) {
    if (found.complete) return found.folder.string();
  }
  return {};
}

void remove_leftovers(const std::string& run_folder) {
  checkpoint::remove_leftovers(checkpoints_of(run_folder));
  checkpoint::remove_leftovers(run_folder);
}

bool is_frozen(const std::string& key) {
  return is_one_of(key, kFrozen);
}

void restore_numerics(const checkpoint::Settings& saved, config::Config& config) {
  const auto restore = [&](const char* key, auto& value, std::int64_t most) {
    const auto at = saved.find(key);
    if (value || at == saved.end()) return;
    typename std::remove_reference_t<decltype(value)>::value_type n{};
    const std::string& text = at->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    SLUICE_CHECK(error == std::errc() && n > 0 && std::int64_t{n} <= most, kCheckpoint,
                 fmt::format("the checkpoint says {}: {}, which no run has", key, text));
    value = n;
  };
  restore("compute.threads", config.compute.threads, 4096);  // as docs/config.md has them
  restore("compute.loss_chunk", config.compute.loss_chunk, 1 << 30);
  restore("compute.mlp_chunk", config.compute.mlp_chunk, 1 << 30);
}

void compare_settings(const checkpoint::Settings& saved, const checkpoint::Settings& now,
                      bool change) {
  std::vector<std::string> frozen;
  for (const auto& [key, value] : now) {
    const auto before = saved.find(key);
    if (before == saved.end() || before->second == value || is_one_of(key, kFree) ||
        only_order(key, before->second, value)) {
      continue;
    }
    std::string difference = fmt::format("{}: {} before, {} now", key, before->second, value);
    if (is_frozen(key)) frozen.push_back(difference);
    log::warning("the run goes on with another " + difference);
  }
  SLUICE_CHECK(frozen.empty() || change, kConfig,
               fmt::format("the numbers of every step rest on what is different now:\n  {}\n"
                           "set it as it was, or say --change to go on so",
                           fmt::join(frozen, "\n  ")));
}

}  // namespace sluice::app
