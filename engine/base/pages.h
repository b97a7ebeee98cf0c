/// Memory in whole pages, straight from the kernel: all zero. Where there is enough of it to pay,
/// in large pages if the kernel has them - a drive and a walk through memory both take less of a
/// processor then - and spread over the machine's nodes (nodes.h).
///
/// Not touched yet: a page that was only ever read is one that all of them share.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/base/units.h"

namespace sluice {

inline constexpr Bytes kLargePage = 2_MiB;

/// n > 0 bytes. Null when there is none left.
std::byte* map_pages(Bytes n) noexcept;
void unmap_pages(std::byte* data, Bytes n) noexcept;

struct UnmapPages {
  Bytes n = 0;
  void operator()(std::byte* data) const noexcept { unmap_pages(data, n); }
};
using PageBytes = std::unique_ptr<std::byte[], UnmapPages>;

/// What map_pages() asks of the kernel for enough of them, for pages that were mapped otherwise;
/// none is touched yet.
void advise_pages(std::byte* data, Bytes n) noexcept;

/// Throws std::bad_alloc.
PageBytes take_pages(Bytes n);

}  // namespace sluice
