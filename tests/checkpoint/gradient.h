/// The gradient of a delayed step with bits that say where they belong, and a checkpoint that has
/// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <vector>

#include "engine/base/dtype.h"
#include "nvme/aligned.h"
#include "tests/checkpoint/state.h"

namespace sluice::checkpoint {

/// By segment, in turn.
inline DType gradient_dtype_of(int segment) {
  constexpr std::array kAll = {DType::kF32, DType::kBf16, DType::kF16};
  return kAll.at(static_cast<std::size_t>(segment) % kAll.size());
}
inline float factor_of(int segment) {
  using Limits = std::numeric_limits<float>;
  constexpr std::array kAll = {1.0F / 3, 0x1p-16F,      -0.0F, 1.0F,
                               0.1F,     Limits::max(), 0.0F,  Limits::denorm_min()};
  return kAll.at(static_cast<std::size_t>(segment) % kAll.size());
}

/// Memory as transfers want it.
class GradientRoom {
 public:
  explicit GradientRoom(Bytes bytes) : bytes_(nvme::allocate_aligned(bytes)), size_(bytes) {}
  std::span<std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  nvme::AlignedBytes bytes_;
  Bytes size_;
};

/// Elements of the segment's dtype, any bits, as they lie in memory.
inline GradientRoom make_gradient(int segment, std::uint64_t first_elem, std::uint64_t elems) {
  const Bytes width = size_of(gradient_dtype_of(segment));
  GradientRoom room(elems * width);
  for (std::uint64_t i = 0; i < elems; ++i) {
    const std::uint64_t place = (static_cast<std::uint64_t>(segment) << 40) + first_elem + i + 1;
    const auto bits = static_cast<std::uint32_t>((place * 0x9e3779b97f4a7c15U) >> 32);
    std::memcpy(room.bytes().subspan(i * width).data(), &bits, width);
  }
  return room;
}

/// As that of state, in chunks of their own.
inline void lay_out_gradients_for(Manifest& manifest, std::uint64_t chunk_elems, Bytes file_size) {
  std::vector<std::vector<zero::Chunk>> chunks;
  std::vector<DType> dtypes;
  for (const SegmentPlace& segment : manifest.segments) {
    dtypes.push_back(gradient_dtype_of(static_cast<int>(chunks.size())));
    chunks.push_back(zero::make_chunks(segment.elems, chunk_elems));
  }
  lay_out_gradients(manifest, chunks, dtypes, file_size);
}

inline std::vector<GradientSum> write_gradients(StateWriter& writer) {
  std::vector<GradientSum> sums;
  for (std::size_t i = 0; i < writer.manifest().gradients.size(); ++i) {
    const Record& r = writer.manifest().gradients[i];
    const GradientRoom room = make_gradient(r.segment, r.first_elem, r.elems);
    writer.write_gradient(i, room.bytes()).wait();
    sums.push_back(
        {sum_of_gradient(r.first_elem, room.bytes(), r.dtype, 0, r.elems), factor_of(r.segment)});
  }
  return sums;
}

inline Position pending_at(Position::Pending pending = Position::Pending::kApplied) {
  return {12, 11, 1, 4096, 2048, 5, pending, 0.1F};
}

/// After a delayed step: state and gradient in chunks of these sizes.
inline void save_delayed(const shape::Model& model, const std::filesystem::path& folder,
                         std::uint64_t state_elems = kGrainElems,
                         std::uint64_t gradient_elems = kGrainElems, Bytes file_size = 5_GiB,
                         const Position& position = pending_at()) {
  Manifest manifest = lay_out_for(model, state_elems, file_size);
  lay_out_gradients_for(manifest, gradient_elems, file_size);
  StateWriter writer(std::move(manifest), folder, companions_of(model.decoder), {});
  const std::vector<std::uint64_t> sums = write_records(writer);
  writer.seal(position, sums, write_gradients(writer));
  writer.publish();
}

}  // namespace sluice::checkpoint
