/// Reads tensors by name from a safetensors file, or from a folder as transformers writes it (one
/// file, or several with an index). Nothing in the files is trusted.
///
/// Owns    the open files
/// Thread  const members: any, several at once
/// Throws  kFormat with file and reason for anything that is not what it claims to be; kIo
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/file.h"
#include "engine/checkpoint/header.h"

namespace sluice::checkpoint {

/// Where elements of a tensor lie, in the file's dtype.
struct Stretch {
  std::size_t file;  ///< of Reader::paths()
  Bytes offset, bytes;
};

class Reader {
 public:
  /// Reads and checks all headers and, for a folder, that the index agrees with them.
  explicit Reader(const std::filesystem::path& file_or_folder);

  /// In alphabetical order.
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  /// kFormat when there is no such tensor.
  const Entry& entry(std::string_view name) const;
  const std::filesystem::path& file_of(std::string_view name) const;
  /// kFormat when read() cannot turn the tensor's dtype into fp32.
  void check_readable(std::string_view name) const;

  /// A whole tensor, row by row, as fp32.
  std::vector<float> read(std::string_view name) const;
  /// Elements first, first + 1, ... of a tensor; kLogic when that leaves it. A piece at a time: for
  /// many bytes have something faster read a stretch, and widen that.
  void read(std::string_view name, std::uint64_t first, std::span<float> out) const;

  std::vector<std::string> paths() const { return paths_of(files_); }
  /// kLogic as read().
  Stretch stretch_of(std::string_view name, std::uint64_t first, std::uint64_t count) const;
  /// Elements of the tensor as the file has them, one for each of `out`, which is elsewhere.
  void widen(std::string_view name, const std::byte* raw, std::span<float> out) const;

 private:
  struct Located {
    Entry entry;
    std::size_t file;
    Bytes data;  // where the file's data begins
  };
  void add(const std::filesystem::path& path);
  void add_indexed(const std::filesystem::path& folder);
  const Located& locate(std::string_view name) const;

  std::filesystem::path path_;
  std::vector<File> files_;
  std::map<std::string, Located, std::less<>> tensors_;
};

}  // namespace sluice::checkpoint
