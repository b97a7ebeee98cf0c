#include "engine/checkpoint/record.h"

#include "engine/zero/options.h"
#include "nvme/sums.h"

namespace sluice::checkpoint {

static_assert(kStateParts.size() * size_of(DType::kF32) == zero::kStateBytesPerElem);

std::uint64_t sum_of_grains(RecordKind kind, DType dtype, std::uint64_t first_elem,
                            std::span<const std::byte> chunk, std::size_t begin, std::size_t end) {
  const std::size_t parts = parts_of(kind).size();
  const Bytes part_bytes = chunk.size() / parts;
  const Bytes grain_bytes = kGrainElems * size_of(dtype);
  std::uint64_t sum = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    for (std::uint64_t at = begin; at < end; at += kGrainElems) {
      // Its place is in the seed: grains that changed places are noticed.
      const std::uint64_t grain = (first_elem + at) / kGrainElems;
      sum += nvme::sum_of(chunk.subspan(part * part_bytes + at * size_of(dtype), grain_bytes),
                          grain * parts + part);
    }
  }
  return sum;
}

std::uint64_t sum_of_state(std::uint64_t first_elem, std::span<const float> state,
                           std::size_t begin, std::size_t end) {
  return sum_of_grains(RecordKind::kState, DType::kF32, first_elem, std::as_bytes(state), begin,
                       end);
}

std::uint64_t sum_of_gradient(std::uint64_t first_elem, std::span<const std::byte> gradient,
                              DType dtype, std::size_t begin, std::size_t end) {
  return sum_of_grains(RecordKind::kGradient, dtype, first_elem, gradient, begin, end);
}

}  // namespace sluice::checkpoint
