/// Which bytes lie on which path: arithmetic only, no I/O.
///
/// Thread  one at a time
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/units.h"

namespace sluice::nvme {

/// A folder as the placement sees it.
struct Place {
  std::string path;
  std::uint64_t device = 0;  ///< folders of one device share its free bytes
  Bytes free = 0;            ///< of the device
};

/// How many bytes each place gets of `capacity`, in multiples of kAlignment: even shares, but a
/// place with less room gives the rest of its share to the others.
///
/// Throws  kBudget with need and free when all of them together are too small
std::vector<Bytes> share_capacity(const std::vector<Place>& places, Bytes capacity);

/// Bytes in a row on one path.
struct Part {
  std::size_t path = 0;  ///< index
  Bytes offset = 0;
  Bytes bytes = 0;
};

/// A range of bytes that reads and writes as one, wherever its parts lie.
struct Extent {
  Bytes bytes = 0;
  std::vector<Part> parts;  ///< in order; their bytes add up

  /// The parts of `n` bytes from `offset`; the range must lie inside.
  std::vector<Part> slice(Bytes offset, Bytes n) const;
};

/// Hands out extents, and never takes one back.
class Allocator {
 public:
  Allocator(std::vector<std::string> paths, const std::vector<Bytes>& capacities);

  /// `n` rounded up to kAlignment: whole on the path with the most room (of equals, the next in
  /// turn), or cut over several when no single path has enough.
  ///
  /// Throws  kBudget, with asked and free
  Extent allocate(Bytes n);
  Bytes free() const;

 private:
  std::size_t roomiest();
  Part take(std::size_t path, Bytes n);

  std::vector<std::string> paths_;
  std::vector<Bytes> capacity_;
  std::vector<Bytes> used_;
  std::size_t last_ = 0;
};

}  // namespace sluice::nvme
