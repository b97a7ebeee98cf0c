/// Bodies of fused/team.h one thread after the other, folded in the device's order.
#pragma once

#include <array>
#include <cstddef>

#include "engine/model/fused/team.h"

namespace sluice::model::emulated {

/// The values of a warp's lanes.
template <class V>
struct Lanes {
  std::array<V, std::size_t{fused::kLanes}> values;

  template <class Op>
  void meet(int apart, Op op) {
    const auto before = values;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = op(before[i], before[i ^ static_cast<std::size_t>(apart)]);
  }
};

template <int kTeam>
struct Team {
  static constexpr int kThreads = kTeam;
  static constexpr std::size_t kWarps = kTeam / fused::kLanes;

  template <class V>
  struct Each {
    std::array<V, std::size_t{kTeam}> all;
    V& operator[](int thread) { return all[static_cast<std::size_t>(thread)]; }
    const V& operator[](int thread) const { return all[static_cast<std::size_t>(thread)]; }
  };

  template <class Body>
  void each(Body body) const {
    for (int thread = 0; thread < kTeam; ++thread) body(thread);
  }
  template <class Of>
  auto sum(Of of) const {
    return fold(of, fused::Plus{});
  }
  template <class Of>
  float greatest(Of of) const {
    return fold(of, fused::Greater{});
  }

  template <class Of, class Op>
  static auto fold(Of of, Op op) {
    using V = decltype(of(0));
    Lanes<V> warps;
    warps.values.fill(static_cast<V>(Op::kNone));
    for (std::size_t warp = 0; warp < kWarps; ++warp) {
      Lanes<V> lanes;
      for (std::size_t i = 0; i < fused::kLanes; ++i) {
        lanes.values[i] = of(static_cast<int>(warp * fused::kLanes + i));
      }
      fused::fold_lanes(lanes, op);
      warps.values[warp] = lanes.values[0];
    }
    if constexpr (kWarps == 1) return warps.values[0];
    fused::fold_lanes(warps, op);
    return warps.values[0];
  }
};

struct Launch {
  template <class Body>
  void each(std::int64_t n, const Body& body) const {
    for (std::int64_t i = 0; i < n; ++i) body(i);
  }
  template <int kTeam, class Body>
  void teams(std::int64_t n, const Body& body) const {
    for (std::int64_t i = 0; i < n; ++i) body(Team<kTeam>{}, i);
  }
};

}  // namespace sluice::model::emulated
