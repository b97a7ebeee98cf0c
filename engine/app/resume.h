/// Which checkpoint a run goes on from (train.resume), and what differs from the run that saved it.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "engine/app/run_folder.h"
#include "engine/checkpoint/manifest.h"
#include "engine/config/config.h"

namespace sluice::app {

/// Where a run begins.
struct Start {
  config::Config config;        ///< with its name decided
  std::string checkpoint;       ///< folder; empty: with its first weights
  bool existing = false;        ///< in a folder that was there before
  std::optional<RunLock> lock;  ///< of the folder, once it is ours
  bool may_pass_over = false;   ///< a damaged checkpoint: an older one will do
};

enum class Take { kNo, kYes };

/// `damaged`: checkpoints that were tried. With Take::kYes takes the lock of a folder in which the
/// run goes on. Changes nothing else. Throws kConfig; kCheckpoint when one is needed and there is
/// none that is whole.
Start choose_start(const config::Config& config, const std::string& file,
                   const std::set<std::string>& damaged, Take take);

/// The newest complete checkpoint of a run's folder; empty: none.
std::string last_checkpoint(const std::string& run_folder);

/// Removes what a process that was ended left half done in the folder, whose lock is ours.
void remove_leftovers(const std::string& run_folder);

/// Whether the numbers of every step rest on what this key says: another value needs `--change`.
bool is_frozen(const std::string& key);

/// What `auto` came to in the run that saved it stays so: threads and chunk of the loss.
void restore_numerics(const checkpoint::Settings& saved, config::Config& config);

/// Says what differs. Throws kConfig for what the numbers of all steps rest on, unless `change`.
void compare_settings(const checkpoint::Settings& saved, const checkpoint::Settings& now,
                      bool change);

}  // namespace sluice::app
