/// The smallest language model there is: the one that a trained model must beat.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/data/dataset.h"

namespace sluice::data {

/// How often each token followed each other one, as a model: P(b after a) = (count(a, b) + 1) /
/// (count(a, anything) + vocabulary), "add-one smoothing".
///
/// Memory grows with the pairs that occur, not with the square of the vocabulary.
class Bigram {
 public:
  /// Ids are 0 to vocab - 1, which must fit 32 bits (kLogic).
  explicit Bigram(std::int64_t vocab);

  /// Counts every token that has a target, with it.
  void count(const Sample& sample);
  /// The surprise at `next` after `token`, in nats: -ln P.
  double nats(std::int64_t token, std::int64_t next) const;
  /// Summed over the targets.
  double nats(const Sample& sample) const;

 private:
  double vocab_;
  std::unordered_map<std::uint64_t, double> pairs_;
  std::unordered_map<std::int64_t, double> firsts_;
};

/// Mean nats per target token of a Bigram that has seen all samples of `train` once, over the
/// (input, target) pairs of the first `samples` samples of `valid`: those of an evaluation over
/// micro-batches times micro-batch size samples in order.
///
/// Reads all of `train`: some 10 to 30 million tokens per second on one thread.
/// Throws kLogic for two vocabularies, and unless 1 <= samples <= valid.samples()
double bigram_loss(const Dataset& train, const Dataset& valid, std::int64_t samples);

}  // namespace sluice::data
