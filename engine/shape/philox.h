/// Philox4x32-10: 128 random bits from a 128-bit counter and a 64-bit key, without any state.
///
/// Paper   Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011),
///         figure 2 and table 2; the tests hold the known answers of its authors
#pragma once

#include <array>
#include <cstdint>

namespace sluice::shape {

using PhiloxBlock = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr int kPhiloxRounds = 10;

constexpr PhiloxBlock philox_round(PhiloxBlock counter, PhiloxKey key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
  const std::uint64_t a = kMultiplier0 * counter[0];
  const std::uint64_t b = kMultiplier1 * counter[2];
  return {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
}

/// Of the next round.
constexpr PhiloxKey next_key(PhiloxKey key) {
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;  // the golden ratio
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;  // the square root of three, less one
  return {key[0] + kWeyl0, key[1] + kWeyl1};
}

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round, key = next_key(key)) {
    counter = philox_round(counter, key);
  }
  return counter;
}

}  // namespace sluice::shape
