#include "engine/checkpoint/record.h"

#include "nvme/sums.h"

namespace sluice::checkpoint {

std::uint64_t sum_of_grains(std::size_t part, std::uint64_t first_elem,
                            std::span<const float> values) {
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < values.size(); at += kGrainElems) {
    // Its place is in the seed: grains that changed places are noticed.
    const std::uint64_t grain = (first_elem + at) / kGrainElems;
    sum += nvme::sum_of(std::as_bytes(values.subspan(at, kGrainElems)),
                        grain * kStateParts.size() + part);
  }
  return sum;
}

std::uint64_t sum_of_state(std::uint64_t first_elem, std::span<const float> state,
                           std::size_t begin, std::size_t end) {
  const std::size_t elems = state.size() / kStateParts.size();
  std::uint64_t sum = 0;
  for (std::size_t part = 0; part < kStateParts.size(); ++part) {
    sum +=
        sum_of_grains(part, first_elem + begin, state.subspan(part * elems + begin, end - begin));
  }
  return sum;
}

}  // namespace sluice::checkpoint
