#include "engine/zero/chunk.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"

namespace sluice::zero {
namespace {

constexpr Bytes kAutoChunkState = 32_MiB;

}  // namespace

std::uint64_t chunk_elems(std::optional<Bytes> sub_group_size) {
  const Bytes state = sub_group_size.value_or(kAutoChunkState);
  SLUICE_CHECK(state >= kMinChunkState, kConfig,
               fmt::format("zero_optimization.sub_group_size: {} holds the state of {} elements "
                           "({} bytes each), and a chunk has at least {}; write 48KiB or more",
                           format_bytes(state), state / kStateBytesPerElem, kStateBytesPerElem,
                           kGrainElems));
  return state / kMinChunkState * kGrainElems;
}

std::vector<Chunk> make_chunks(std::uint64_t segment_elems, std::uint64_t chunk_elems) {
  SLUICE_CHECK(segment_elems % kGrainElems == 0, kLogic,
               fmt::format("a segment of {} elements is not whole grains", segment_elems));
  SLUICE_CHECK(chunk_elems > 0 && chunk_elems % kGrainElems == 0, kLogic,
               fmt::format("a chunk of {} elements is not whole grains", chunk_elems));
  std::vector<Chunk> chunks;
  for (std::uint64_t at = 0; at < segment_elems;) {
    const std::uint64_t n = std::min(chunk_elems, segment_elems - at);
    chunks.push_back({at, n});
    at += n;
  }
  return chunks;
}

std::vector<Run> runs(const shape::Segment& segment, const Layout& layout, Chunk chunk) {
  SLUICE_CHECK(chunk.first_elem <= layout.elems && chunk.elems <= layout.elems - chunk.first_elem,
               kLogic,
               fmt::format("a chunk of {} elements at {} leaves segment '{}' of {}", chunk.elems,
                           chunk.first_elem, segment.name(), layout.elems));
  std::vector<Run> out;
  std::uint64_t at = chunk.first_elem;
  const std::uint64_t end = chunk.first_elem + chunk.elems;
  const auto add = [&](std::uint64_t until, bool decayed, int tensor) {
    until = std::min(until, end);
    if (until <= at) return;
    out.push_back({at, until - at, decayed, tensor});
    at = until;
  };
  for (const Placed& p : layout.tensors) {
    add(p.offset_elems, false, -1);
    add(p.end(), segment.tensors.at(static_cast<std::size_t>(p.tensor)).decayed(), p.tensor);
  }
  add(end, false, -1);
  return out;
}

}  // namespace sluice::zero
