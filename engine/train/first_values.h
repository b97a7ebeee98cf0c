/// What a run starts from: weights drawn from the seed or read as they were saved, or the whole
/// state of a checkpoint. Chunk by chunk, each in two steps: first its bytes come, then they become
/// numbers.
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
#include "engine/checkpoint/state_reader.h"
#include "engine/checkpoint/writer.h"
#include "engine/shape/model.h"
#include "engine/zero/chunk.h"
#include "nvme/options.h"

namespace sluice::train {

class FirstValues {
 public:
  virtual ~FirstValues() = default;

  /// Begins to bring into a chunk's `state` what fill() wants: master, m and v, on kAlignment; to
  /// be left alone until the ticket is done. Throws kIo, from the ticket too.
  virtual Ticket read(int segment, const zero::Chunk& chunk, std::span<float> state) const = 0;

  /// Makes the chunk's first values of it, once read() is done; `each` has the threads. Throws
  /// kFormat, kIo, kCheckpoint.
  virtual void fill(int segment, const zero::Chunk& chunk, std::span<float> state,
                    const checkpoint::Each& each) const = 0;

  /// Of a gradient whose update is still to come. Only a checkpoint has one; the others throw
  /// kLogic.
  struct Waiting {
    float factor = 1;
    float lr = 0;
  };
  virtual Waiting waiting(int segment) const;
  /// Begins to bring a chunk of it; to be left alone until the ticket is done.
  virtual Ticket read_gradient(int segment, const zero::Chunk& chunk,
                               std::span<std::byte> gradient) const;
  /// Once it is there: that it is what was saved. Throws kCheckpoint.
  virtual void check_gradient(int segment, const zero::Chunk& chunk,
                              std::span<const std::byte> gradient,
                              const checkpoint::Each& each) const;
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

/// The state as it was saved; with `verify` checked against its sums. Throws kCheckpoint from
/// fill().
std::unique_ptr<FirstValues> resumed_values(std::unique_ptr<const checkpoint::StateReader> reader,
                                            bool verify);

}  // namespace sluice::train
