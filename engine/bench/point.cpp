#include "engine/bench/point.h"

#include <algorithm>

namespace sluice::bench {

const char* name_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::kRead:
      return "read";
    case Traffic::kWrite:
      return "write";
    case Traffic::kMixed:
      return "mixed";
  }
  return "";
}

unsigned threads_of(const Point& point) {
  return std::min(point.depth, nvme::kMaxThreads);
}

std::size_t requests_at_a_time(const Point& point, Bytes request) {
  return std::max<std::size_t>(3, 1 + div_ceil(2 * point.in_flight(), request));
}

}  // namespace sluice::bench
