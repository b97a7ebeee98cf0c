/// Segments of random tensors, for properties.
#pragma once

#include <rapidcheck.h>

#include "engine/shape/model.h"

namespace sluice::zero {

inline shape::Segment random_segment() {
  shape::Segment s{shape::SegmentKind::kLayer, 0, {}};
  const int count = *rc::gen::inRange(1, 12);
  for (int i = 0; i < count; ++i) {
    const std::int64_t rows = *rc::gen::inRange<std::int64_t>(1, 300);
    const std::int64_t columns = *rc::gen::inRange<std::int64_t>(1, 200);
    std::vector<std::int64_t> extents{rows};
    if (*rc::gen::inRange(0, 2) == 1) extents.push_back(columns);
    s.tensors.push_back({shape::Role::kUpWeight, "t" + std::to_string(i), extents});
  }
  return s;
}

}  // namespace sluice::zero
