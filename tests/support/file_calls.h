/// The system calls by which this program changes files, in their order: what a power loss leaves
/// is decided by that order.
///
/// A program that links file_calls.cpp has that file's write, pwrite, ftruncate, fallocate, fsync,
/// fdatasync and rename instead of the C library's. They do the same and are seen while a FileCalls
/// lives. A file that is written in another way shows no writes: ask for them.
///
/// Thread  one FileCalls at a time; calls may come from any thread
#pragma once

#include <cstdint>
#include <filesystem>
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
};

}  // namespace sluice::test
