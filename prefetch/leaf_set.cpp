#include "prefetch/leaf_set.h"

#include <algorithm>
#include <utility>

namespace sluice::prefetch {

LeafSet::LeafSet(std::vector<LeafRange> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](LeafRange a, LeafRange b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const LeafRange range : ranges_) {
    if (kept > 0 && range.begin <= ranges_[kept - 1].end) {
      ranges_[kept - 1].end = std::max(ranges_[kept - 1].end, range.end);
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
  ranges_.shrink_to_fit();
}

bool LeafSet::contains(LeafId leaf) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](LeafRange range) { return range.begin <= leaf && leaf < range.end; });
}

std::size_t LeafSet::size() const {
  std::size_t leaves = 0;
  for (const LeafRange range : ranges_) leaves += range.end - range.begin;
  return leaves;
}

}  // namespace sluice::prefetch
