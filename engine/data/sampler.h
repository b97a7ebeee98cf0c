/// Which sample comes next.
#pragma once

#include <cstdint>

namespace sluice::data {

enum class Order : std::uint8_t { kSequential, kShuffled };

/// The order of a dataset's samples, for ever: every epoch visits each of them once.
///
/// A shuffled epoch is a pseudo-random permutation of its own, decided by (seed, epoch) and
/// computed, never stored: going on from any position costs nothing, for any number of samples.
/// The order is part of a run's numbers and does not change between versions.
///
/// [Note: Shuffle] With g = 0x9e3779b97f4a7c15, mix() the finaliser of SplitMix64 and everything
/// modulo 2^64: key = mix(mix(seed + g) + epoch + 1), and the index at a place of the epoch is
/// permute(place), permuted again until it is below `samples`. permute() is a Feistel network over
/// two halves of h bits, h being half of the bits of samples - 1, rounded up; its round r of 1 to 8
/// makes (left, right) into (right, left ^ the low h bits of mix(mix(key + r g) ^ right)).
///
/// Units   position = samples drawn before this one, by all ranks, since the run began
/// Thread  any
class Sampler {
 public:
  /// Throws kLogic without samples.
  Sampler(std::int64_t samples, std::uint64_t seed, Order order);

  /// The index of a sample, of 0 to samples - 1.
  std::int64_t at(std::uint64_t position) const;
  std::uint64_t epoch(std::uint64_t position) const { return position / samples_; }

 private:
  std::uint64_t samples_;
  std::uint64_t seed_;
  Order order_;
  int half_bits_;  ///< of the smallest even-width number that can hold every index
};

}  // namespace sluice::data
