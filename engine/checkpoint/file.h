/// A file of a checkpoint: whole transfers at an offset, or an error that says where.
///
/// Owns    the descriptor
/// Thread  read() and write(): any, several at once; the rest one at a time
/// Throws  kIo with file, offset, length and the system's reason; kBudget when the disk is full
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/units.h"
#include "nvme/options.h"

namespace sluice::checkpoint {

class File {
 public:
  /// A file that must not exist yet.
  static File create(const std::filesystem::path& path);
  static File open(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  Bytes size() const;
  /// Sets the size and claims the space, so that a full disk shows now and not half way.
  void reserve(Bytes size);
  void write(Bytes offset, std::span<const std::byte> data) const;
  /// kFormat when the file ends before.
  void read(Bytes offset, std::span<std::byte> out) const;
  void sync();
  const std::filesystem::path& path() const { return path_; }

 private:
  File(std::filesystem::path path, int fd);
  std::filesystem::path path_;
  int fd_;
};

/// In their order.
std::vector<std::string> paths_of(std::span<const File> files);

/// Makes the names in a folder durable, as File::sync() does for bytes.
void sync_folder(const std::filesystem::path& folder);

/// Throws kFormat when it is longer than `most`.
std::string read_text(const std::filesystem::path& path, Bytes most);

/// A new file with this text, synced.
void write_text(const std::filesystem::path& path, std::string_view text);

/// Throws kBudget, with what is needed and what is free, when `need` bytes do not fit the file
/// system of `folder`; `what` they are, for people.
void check_free_space(const std::filesystem::path& folder, Bytes need, std::string_view what);

/// Whether O_DIRECT works for new files in a folder is tried, not believed: without it they go
/// through the page cache.
nvme::Options as_it_works_in(const std::filesystem::path& folder, nvme::Options queue);

}  // namespace sluice::checkpoint
