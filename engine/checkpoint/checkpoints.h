/// The checkpoints of a run: folders `step-N` in its folder `checkpoints`.
///
/// Thread  one at a time
/// Throws  kIo
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sluice::checkpoint {

struct Found {
  std::filesystem::path folder;
  std::int64_t step = 0;
  /// One that was saved at a step at which another one stood already: step-N.2, step-N.3, ...
  std::int64_t copy = 1;
  /// It says so. Whether it is true, StateReader knows.
  bool complete = false;
};

/// The newest first: the highest step, of these the highest copy. None where there is no folder;
/// one that cannot be read is an error.
std::vector<Found> list_checkpoints(const std::filesystem::path& checkpoints);

/// A name for a new one, that stands nowhere yet.
std::filesystem::path new_checkpoint(const std::filesystem::path& checkpoints, std::int64_t step);

struct Keep {
  std::int64_t newest = 3;              ///< at least 1
  std::optional<std::int64_t> every{};  ///< those of whole multiples of so many steps stay too
  std::set<std::string> damaged{};      ///< names of folders that are complete in name only
};
/// Removes complete ones that need not be kept, oldest first, each under a name that
/// remove_leftovers() knows. `latest` is whole and counts first: what is newer than it was passed
/// over when the run went on. That stays, with what is broken.
void prune_checkpoints(const std::filesystem::path& checkpoints, const std::string& latest,
                       const Keep& keep);

/// Removes what a writer (here or of final weights), a new file of a run's folder or
/// prune_checkpoints() left half done when its process ended; what cannot be removed is said.
/// Nobody else may be at work there.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace sluice::checkpoint
