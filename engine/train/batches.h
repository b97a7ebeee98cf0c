/// Which tokens a micro-batch of a program holds.
///
/// Thread  any
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/data/dataset.h"
#include "engine/data/sampler.h"
#include "engine/train/op_bytes.h"

namespace sluice::train {

class Batches {
 public:
  /// `valid` may be null; then no evaluation program is run.
  Batches(const data::Dataset& train, const data::Dataset* valid, const data::Sampler& sampler,
          std::int64_t micro_batch_size, std::int64_t micro_batches)
      : train_(train),
        valid_(valid),
        sampler_(sampler),
        micro_batch_size_(micro_batch_size),
        micro_batches_(micro_batches) {}

  /// Fills tokens and targets, each [B, S]. A training step draws the next samples of the sampler,
  /// an evaluation the first ones of the validation data, in order.
  void load(Tag tag, std::int64_t micro_batch, std::span<std::int64_t> tokens,
            std::span<std::int64_t> targets) const;

 private:
  const data::Dataset& train_;
  const data::Dataset* valid_;
  const data::Sampler& sampler_;
  std::int64_t micro_batch_size_;
  std::int64_t micro_batches_;
};

}  // namespace sluice::train
