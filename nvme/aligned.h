/// Memory that O_DIRECT takes: it begins on a multiple of kAlignment.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "engine/base/units.h"

namespace sluice::nvme {

struct FreeAligned {
  void operator()(std::byte* memory) const noexcept {
    ::operator delete[](memory, std::align_val_t{kAlignment});
  }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;

/// `n` bytes, all zero.
inline AlignedBytes allocate_aligned(Bytes n) {
  return AlignedBytes(new (std::align_val_t{kAlignment}) std::byte[n]());
}

}  // namespace sluice::nvme
