#include "engine/tensor/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/base/error.h"

namespace sluice::tensor {

std::optional<Bytes> Arena::take(Bytes n, Fit fit) {
  const Bytes size = round_up(n, kStep);
  auto best = gaps_.end();
  for (auto gap = fit == Fit::kBest ? gaps_.begin() : gaps_.end(); gap != gaps_.end(); ++gap) {
    if (gap->second >= size && (best == gaps_.end() || gap->second < best->second)) best = gap;
  }
  Bytes offset = end_;
  if (best != gaps_.end()) {
    offset = best->first;
    const Bytes rest = best->second - size;
    gaps_.erase(best);
    if (rest > 0) gaps_.emplace(offset + size, rest);
  } else {
    if (size > capacity_ - end_) return std::nullopt;
    end_ += size;
    peak_ = std::max(peak_.load(), end_);
  }
  taken_.emplace(offset, size);
  used_ += size;
  return offset;
}

void Arena::give_back(Bytes offset) {
  const auto piece = taken_.find(offset);
  SLUICE_CHECK(piece != taken_.end(), kLogic,
               fmt::format("arena: nothing that begins at offset {} is taken", offset));
  Bytes size = piece->second;
  used_ -= size;
  taken_.erase(piece);

  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && offset + size == after->first) {
    size += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      gaps_.erase(before);
    }
  }
  if (offset + size == end_) {
    end_ = offset;
  } else {
    gaps_.emplace(offset, size);
  }
}

}  // namespace sluice::tensor
