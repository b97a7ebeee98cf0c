/// Which tokens a micro-batch of a program holds.
///
/// Thread  any
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/data/dataset.h"
#include "engine/data/sampler.h"
#include "engine/schedule/batch.h"
#include "engine/train/op_bytes.h"

namespace sluice::train {

/// A training step draws the next samples of the sampler, an evaluation the first ones of the
/// validation data, in order.
class Batches {
 public:
  /// `valid` may be null; then no evaluation program is run, and `evaluated` is 0. In
  /// micro-batches.
  Batches(const data::Dataset& train, const data::Dataset* valid, const data::Sampler& sampler,
          std::int64_t micro_batch_size, std::int64_t micro_batches, std::int64_t evaluated)
      : train_(train),
        valid_(valid),
        sampler_(sampler),
        micro_batch_size_(micro_batch_size),
        micro_batches_(micro_batches),
        evaluated_(evaluated) {}

  void load(Tag tag, std::int64_t micro_batch, schedule::Batch into) const;

  /// Of all micro-batches of the program: what its losses are divided by. Known before any of
  /// them is loaded.
  std::int64_t targets(Tag tag) const;

 private:
  const data::Dataset& data(Tag tag) const;
  std::int64_t count_targets(Tag tag) const;
  /// The index in data() of the program's n-th sample.
  std::int64_t sample(Tag tag, std::int64_t n) const;

  const data::Dataset& train_;
  const data::Dataset* valid_;
  const data::Sampler& sampler_;
  std::int64_t micro_batch_size_;
  std::int64_t micro_batches_;
  std::int64_t evaluated_;
  mutable std::mutex mutex_;  // guards the last count: every micro-batch of a program asks for it
  mutable std::optional<std::pair<std::uint64_t, std::int64_t>> counted_;  // of a packed tag
};

}  // namespace sluice::train
