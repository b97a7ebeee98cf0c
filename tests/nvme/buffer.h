/// Memory aligned to kAlignment, for one transfer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>
#include <span>
#include <utility>

#include "engine/base/units.h"

namespace sluice::test {

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

}  // namespace sluice::test
