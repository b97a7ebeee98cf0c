/// The system calls by which this program changes files, in their order: what a power loss leaves
/// is decided by that order.
///
/// A program that links file_calls.cpp has that file's write, pwrite, ftruncate, fallocate, fsync,
/// fdatasync and rename instead of the C library's. They do the same and are seen while a FileCalls
/// lives. A file that is written in another way shows no writes: ask for them.
///
/// Thread  one FileCalls at a time; calls may come from any thread
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

namespace sluice::test {

struct FileCall {
  enum class Kind : std::uint8_t { kChange, kSync, kRename };
  Kind kind;
  std::filesystem::path path;     ///< when it was called; of a rename the old name
  std::filesystem::path renamed;  ///< the new name
};

class FileCalls {
 public:
  FileCalls();
  ~FileCalls();
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;

  /// Those that succeeded, so far.
  std::vector<FileCall> calls() const;

  /// From now on each pwrite() of another thread than this takes `longer`; after `whole` of them
  /// they fail with EIO.
  void disturb(std::chrono::milliseconds longer, int whole = std::numeric_limits<int>::max());
  /// Of other threads, since then.
  int disturbed() const;
};

}  // namespace sluice::test
