#include "engine/data/sampler.h"

#include <fmt/core.h>

#include <bit>

#include "engine/base/error.h"

namespace sluice::data {
namespace {

constexpr int kRounds = 8;  // four mix well only when the halves are wide

/// Spreads every bit of x over all 64 (the finaliser of SplitMix64).
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;

/// A bijection of the numbers of 2 * half_bits bits: a Feistel network, which can be undone
/// whatever its round function is.
std::uint64_t permute(std::uint64_t x, std::uint64_t key, int half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = x >> half_bits;
  std::uint64_t right = x & mask;
  for (int round = 0; round < kRounds; ++round) {
    key += kGolden;
    const std::uint64_t next = left ^ (mix(mix(key) ^ right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

Sampler::Sampler(std::int64_t samples, std::uint64_t seed, Order order)
    : samples_(static_cast<std::uint64_t>(samples)), seed_(seed), order_(order) {
  SLUICE_CHECK(samples >= 1, kLogic, fmt::format("a sampler over {} samples", samples));
  half_bits_ = (static_cast<int>(std::bit_width(samples_ - 1)) + 1) / 2;
}

std::int64_t Sampler::at(std::uint64_t position) const {
  std::uint64_t index = position % samples_;
  if (order_ == Order::kShuffled) {
    const std::uint64_t key = mix(mix(seed_ + kGolden) + epoch(position) + 1);
    // Walking on along its cycle until it is an index again keeps it a bijection. Fewer than three
    // in four of the numbers are none.
    do {
      index = permute(index, key, half_bits_);
    } while (index >= samples_);
  }
  return static_cast<std::int64_t>(index);
}

}  // namespace sluice::data
