/// A file descriptor that closes itself, and reads that name the file when they fail.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace sluice::data {

/// An open file. What has become a FIFO or a device since somebody looked is not waited for.
///
/// Owns    the descriptor
/// Thread  any, as pread and write are
/// Throws  kIo naming the file
class Descriptor {
 public:
  Descriptor(std::string path, int flags, mode_t mode = 0644);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  /// Fills the whole span from `offset`; a file that ends before that is an error.
  void read(std::uint64_t offset, std::span<std::byte> into) const;
  /// Appends at the descriptor's position; everything or an error.
  void write(std::span<const std::byte> bytes) const;
  void truncate(std::uint64_t bytes) const;
  /// Everything written so far is on the drive.
  void sync() const;
  std::uint64_t size() const;

 private:
  std::string path_;
  int fd_;
};

}  // namespace sluice::data
