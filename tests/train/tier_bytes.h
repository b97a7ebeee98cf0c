/// Bytes of the tiers, for the host to read and to write: by itself where the device is the host,
/// else by copies of a stream, which it waits for.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/units.h"
#include "gpu/device.h"
#include "gpu/local.h"
#include "gpu/stream.h"

namespace sluice::train {

class TierBytes {
 public:
  TierBytes() {
    if (!gpu::device().unified) stream_.emplace("test");
  }

  template <class T>
  std::vector<T> read(std::span<T> from) {
    std::vector<T> values(from.size());
    copy(values.data(), from.data(), from.size_bytes());
    return values;
  }
  void write(std::byte* to, std::span<const std::byte> from) { copy(to, from.data(), from.size()); }
  template <class T>
  void write(std::span<T> to, const T& value) {
    write(reinterpret_cast<std::byte*>(to.data()), std::as_bytes(std::span(&value, 1)));
  }

 private:
  void copy(void* to, const void* from, Bytes n) {
    if (stream_) {
      stream_->copy(to, from, n).ticket().wait();
      return;
    }
    const auto here = [](const void* p) {
      return gpu::local(static_cast<std::byte*>(const_cast<void*>(p)));
    };
    std::memcpy(here(to), here(from), n);
  }

  std::optional<gpu::Stream> stream_;
};

}  // namespace sluice::train
