/// What a model starts from: drawn from the seed, or read from weights as they were saved. Chunk by
/// chunk, each in two steps: first its bytes come, then they become numbers.
///
/// Units   elements of a segment's flat buffer (zero::Layout); padding is zero
/// Thread  any, several at once
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "engine/base/ticket.h"
#include "engine/shape/model.h"
#include "engine/zero/chunk.h"
#include "nvme/options.h"

namespace sluice::train {

class FirstValues {
 public:
  virtual ~FirstValues() = default;

  /// Begins to bring into `room` what fill() wants of a chunk's elements. Aligned to kAlignment,
  /// two floats for each element; to be left alone from now on, and by others until the ticket is
  /// done. Throws kIo, from the ticket too.
  virtual Ticket read(int segment, const zero::Chunk& chunk, std::span<std::byte> room) const = 0;

  /// Elements first, first + 1, ... of the chunk, once read() is done. Throws kFormat, kIo.
  virtual void fill(int segment, const zero::Chunk& chunk, std::span<const std::byte> room,
                    std::uint64_t first, std::span<float> out) const = 0;
};

std::unique_ptr<FirstValues> drawn_values(std::uint64_t seed,
                                          std::shared_ptr<const shape::Model> model);

/// Reads no byte of a tensor twice. Throws kFormat, here when a tensor of the model is missing, has
/// another shape, or one belongs to no part of it; in fill() when a number is not finite. Throws
/// kIo. `queue`: how bytes come from the drive; the tickets of read() throw as
/// nvme::UnalignedFiles.
std::unique_ptr<FirstValues> stored_values(const std::filesystem::path& weights,
                                           std::shared_ptr<const shape::Model> model,
                                           const nvme::Options& queue);

}  // namespace sluice::train
