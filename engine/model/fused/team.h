/// What the kernels of this room are written in: bodies that run once per element, and bodies that
/// a team of threads runs together, one row each. A device runs all threads at once
/// (cuda/launch.h); a test runs the same bodies one thread after the other (tests/model/emulated),
/// with the same bits as far as exp, cos and their like agree.
///
/// A `Launch` has
///   each(n, body)               body(i) for i in [0, n), in any order
///   teams<kThreads>(n, body)    body(team, i) for i in [0, n), a team of 32 or 256 for each
/// A `Team` has
///   each(f)                     f(thread) on every thread
///   sum(f), greatest(f)         of f(thread), known to every thread, folded as fold_lanes() says
///   Each<V>                     a V of every thread, by its number
#pragma once

#include <cfloat>
#include <cstdint>

#include "engine/base/device_code.h"

namespace sluice::model::fused {

/// Threads that exchange values without memory.
inline constexpr int kLanes = 32;
/// The teams of narrow rows and of wide ones.
inline constexpr int kOneWarp = kLanes, kWholeBlock = 8 * kLanes;

struct Plus {
  template <class V>
  SLUICE_DEVICE V operator()(V a, V b) const {
    return a + b;
  }
  static constexpr float kNone = 0.0F;
};

struct Greater {
  SLUICE_DEVICE float operator()(float a, float b) const { return a > b ? a : b; }
  static constexpr float kNone = -FLT_MAX;
};

/// One value out of a warp's, in one fixed tree: with the lane 16 further first, then 8, ... 1.
/// `lanes.meet(apart, op)`: each lane's value becomes op(its own, that of lane ^ apart).
template <class Lanes, class Op>
SLUICE_DEVICE void fold_lanes(Lanes& lanes, Op op) {
  for (int apart = kLanes / 2; apart > 0; apart /= 2) lanes.meet(apart, op);
}

/// `n` neighbours of a row, as a thread works on them.
template <int n>
struct Floats {
  float at[static_cast<unsigned>(n)];  // NOLINT(modernize-avoid-c-arrays): nvcc has no std::array
};

/// What one instruction loads: 16 bytes of the narrowest type at the most.
template <class T, int n>
struct alignas(sizeof(T) * unsigned{n} < 16 ? sizeof(T) * unsigned{n} : 16) Pack {
  T at[static_cast<unsigned>(n)];  // NOLINT(modernize-avoid-c-arrays)
};

template <int n, class T>
SLUICE_DEVICE Floats<n> load(const T* from) {
  const Pack<T, n> pack = *reinterpret_cast<const Pack<T, n>*>(from);
  Floats<n> values;
  for (int k = 0; k < n; ++k) values.at[k] = static_cast<float>(pack.at[k]);
  return values;
}

template <int n, class T>
SLUICE_DEVICE void store(T* to, const Floats<n>& values) {
  Pack<T, n> pack;
  for (int k = 0; k < n; ++k) pack.at[k] = static_cast<T>(values.at[k]);
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}

/// Calls body(i) for the first element i of each pack that this thread of the team has in a row.
template <int kPack, class Team, class Body>
SLUICE_DEVICE void for_packs(const Team&, int thread, std::int64_t width, Body body) {
  constexpr std::int64_t kStep = Team::kThreads * kPack;
  for (std::int64_t i = std::int64_t{thread} * kPack; i < width; i += kStep) body(i);
}

/// The sum of a row: `values(i)` gives the pack that begins at i.
template <int kPack, class Team, class Values>
SLUICE_DEVICE float row_sum(const Team& team, std::int64_t width, Values values) {
  return team.sum([&](int thread) {
    float sum = 0;
    for_packs<kPack>(team, thread, width, [&](std::int64_t i) {
      const Floats<kPack> pack = values(i);
      for (int k = 0; k < kPack; ++k) sum += pack.at[k];
    });
    return sum;
  });
}

}  // namespace sluice::model::fused
