/// A folder that appears under its name complete, or not at all.
///
/// Owns    the temporary folder beside the target, and removes it unless published
/// Throws  kConfig when the target holds something already; kIo
#pragma once

#include <filesystem>

namespace sluice::checkpoint {

class TemporaryFolder {
 public:
  /// Makes the temporary folder, and the parents of `target`.
  explicit TemporaryFolder(const std::filesystem::path& target);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& target() const { return target_; }
  /// Makes the names durable, renames the folder to the target, and makes that durable, with the
  /// names of all folders above it. Its files must be synced.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;  // empty once published
};

}  // namespace sluice::checkpoint
