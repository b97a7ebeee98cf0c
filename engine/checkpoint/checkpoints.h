/// The checkpoints of a run: folders `step-N` in its folder `checkpoints`.
///
/// Thread  one at a time
/// Throws  kIo
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
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

/// The newest first: the highest step, of these the highest copy. None where there is no folder.
std::vector<Found> list_checkpoints(const std::filesystem::path& checkpoints);

/// A name for a new one, that stands nowhere yet.
std::filesystem::path new_checkpoint(const std::filesystem::path& checkpoints, std::int64_t step);

struct Keep {
  std::int64_t newest = 3;              ///< at least 1
  std::optional<std::int64_t> every{};  ///< those of whole multiples of so many steps stay too
};
/// Removes complete ones that need not be kept, oldest first, each under a name that
/// remove_leftovers() knows. What is broken stays where it is.
void prune_checkpoints(const std::filesystem::path& checkpoints, const Keep& keep);

/// Removes what a writer or prune_checkpoints() left half done when its process ended: nobody else
/// may be at work there.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace sluice::checkpoint
