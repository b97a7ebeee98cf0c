#include "engine/bench/point.h"

#include <fmt/format.h>

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

std::string block_text(Bytes block) {
  if (block % 1_GiB == 0) return fmt::format("{}GiB", block >> 30);
  if (block % 1_MiB == 0) return fmt::format("{}MiB", block >> 20);
  return fmt::format("{}KiB", block >> 10);
}

unsigned threads_of(const Point& point) {
  return std::min(point.depth, nvme::kMaxThreads);
}

std::size_t requests_at_a_time(const Point& point, Bytes request) {
  return std::max<std::size_t>(3, 1 + div_ceil(2 * point.in_flight(), request));
}

}  // namespace sluice::bench
