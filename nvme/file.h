/// One open file.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/units.h"

namespace sluice::nvme {

enum class Access : std::uint8_t {
  kRead,
  kReadWrite,
  kCreateNew  ///< read and write; an existing file of that name is an error
};

enum class Caching : std::uint8_t {
  kPageCache,
  kDirect  ///< O_DIRECT: offsets, lengths and addresses are multiples of kAlignment
};

/// What came of asking for space ahead.
struct Claim {
  int failed = 0;       ///< errno
  bool claimed = true;  ///< false: this filesystem cannot, and the file has only got its length
};

/// Of the first `n` bytes of an open file, one at least; it becomes that long.
Claim claim_space(int fd, Bytes n);

/// An open file and the path to name in messages. Closed when dropped.
///
/// Owns    the descriptor, not the name: a file that was created stays until `unlink()`
/// Thread  one at a time, but for const members
class File {
 public:
  /// Throws  kIo, with the path and what the system said
  static File open(std::string path, Access access, Caching caching);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Reserves the space of the first `n` bytes and makes the file that long, so that no later write
  /// runs out of space. Where the filesystem cannot reserve, the file only gets its length, and a
  /// warning says so.
  ///
  /// Throws  kBudget with need and free when it does not fit, before anything is reserved where
  ///         that can be known; kIo
  void preallocate(Bytes n);

  /// Removes the name. The bytes go when the file is closed, also by kill -9.
  void unlink();

  Bytes size() const;
  int fd() const noexcept { return fd_; }
  Caching caching() const noexcept { return caching_; }
  const std::string& path() const noexcept { return path_; }

 private:
  File(int fd, std::string path, Caching caching);
  void close() noexcept;

  int fd_ = -1;
  std::string path_;
  Caching caching_ = Caching::kPageCache;
};

}  // namespace sluice::nvme
