/// Which ops of a random stream must keep their order, straight from the definition.
#pragma once

#include <algorithm>
#include <vector>

#include "prefetch/scoreboard.h"
#include "tests/support/random_program.h"

namespace sluice::testing {

/// They share a leaf that one of them writes.
inline bool conflict(const RandomStream& stream, prefetch::OpRef a, prefetch::OpRef b) {
  const auto& x = stream.programs[a.instance]->accesses(a.index);
  const auto& y = stream.programs[b.instance]->accesses(b.index);
  const prefetch::LeafId first = stream.residents->end_leaf();
  const auto meet = [&](const auto& l, const auto& r) {
    return std::any_of(l.begin(), l.end(), [&](prefetch::LeafId leaf) {
      return (leaf < first || a.instance == b.instance) && r.contains(leaf);
    });
  };
  return meet(x.writes, y.writes) || meet(x.writes, y.reads) || meet(x.reads, y.writes);
}

}  // namespace sluice::testing
