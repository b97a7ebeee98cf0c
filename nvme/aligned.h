/// Memory that O_DIRECT takes: it begins on a multiple of kAlignment.
#pragma once

#include <cstring>

#include "engine/base/pages.h"
#include "engine/base/units.h"

namespace sluice::nvme {

using AlignedBytes = PageBytes;

/// `n` bytes above 0, all zero and each of its own: where nothing was written, the kernel would
/// have a drive write one page over and over.
inline AlignedBytes allocate_aligned(Bytes n) {
  AlignedBytes bytes = take_pages(n);
  std::memset(bytes.get(), 0, n);
  return bytes;
}

}  // namespace sluice::nvme
