/// A folder and aligned memory for one test.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>

#include "engine/base/error.h"
#include "engine/base/ticket.h"
#include "engine/base/units.h"

namespace sluice::test {

/// Removed with all it holds when dropped.
class ScratchFolder {
 public:
  explicit ScratchFolder(std::string parent = testing::TempDir()) {
    std::string name = (std::filesystem::path(parent) / "sluice-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

/// Memory aligned to kAlignment.
class Buffer {
 public:
  explicit Buffer(Bytes n)
      : bytes_(n),
        data_(static_cast<std::byte*>(::operator new (n, std::align_val_t{kAlignment}))) {
    fill(std::byte{0});
  }
  Buffer(Buffer&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { ::operator delete (data_, std::align_val_t{kAlignment}); }

  std::byte* data() const { return data_; }
  Bytes size() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  void fill(std::byte value) const { std::fill_n(data_, bytes_, value); }
  bool operator==(const Buffer& other) const { return std::ranges::equal(span(), other.span()); }

  /// The same bytes for the same seed.
  static Buffer random(Bytes n, std::uint64_t seed) {
    Buffer made(n);
    std::mt19937_64 values(seed);
    for (std::byte& byte : made.span()) byte = static_cast<std::byte>(values());
    return made;
  }

 private:
  Bytes bytes_;
  std::byte* data_;
};

/// The error that `action` throws; a test failure when it throws none.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Errc::kLogic, "nothing was thrown"};
}

inline Error error_of(const Ticket& ticket) {
  return error_of([&] { ticket.wait(); });
}

}  // namespace sluice::test
