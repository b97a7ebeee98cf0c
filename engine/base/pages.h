/// Memory in whole pages, straight from the kernel: all zero, and in large pages where there is
/// enough of it for them to pay and the kernel has them. A drive and a walk through memory both
/// take less of a processor then.
///
/// Not touched yet: a page that was only ever read is one that all of them share.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/base/units.h"

namespace sluice {

/// n > 0 bytes. Null when there is none left.
std::byte* map_pages(Bytes n) noexcept;
void unmap_pages(std::byte* data, Bytes n) noexcept;

struct UnmapPages {
  Bytes n = 0;
  void operator()(std::byte* data) const noexcept { unmap_pages(data, n); }
};
using PageBytes = std::unique_ptr<std::byte[], UnmapPages>;

/// Throws std::bad_alloc.
PageBytes take_pages(Bytes n);

}  // namespace sluice
