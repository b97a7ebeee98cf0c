/// Addresses of device memory, as work on a stream may use them.
///
/// Whoever is not the device knows such memory by address only: it offsets it and hands it on. Work
/// that runs on a stream asks here for the address under which the bytes can be read. That is the
/// same one on every device whose kernels take plain addresses; `gpu/host` hands out others for
/// memory of Reach::kDevice (memory.h), so that host code which touches device bytes dies at once
/// on a machine without a device.
#pragma once

#include <cstddef>
#include <span>

namespace sluice::gpu {

/// Where work of the device finds the byte at `address`, which may also be of host memory: that is
/// where it is.
///
/// Thread  any
std::byte* local(std::byte* address);

template <class T>
std::span<T> local(std::span<T> values) {
  auto* first = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data()));
  return {reinterpret_cast<T*>(local(first)), values.size()};
}

}  // namespace sluice::gpu
