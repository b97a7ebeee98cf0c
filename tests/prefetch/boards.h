/// Short hand for scoreboards in the unit tests.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "prefetch/scoreboard.h"
#include "tests/prefetch/programs.h"

namespace sluice::prefetch {

inline Scoreboard board_with(const Writing& w, Pools pools, Lanes lanes) {
  return Scoreboard(w.residents(), std::move(pools), std::move(lanes));
}

inline OpRef must_start(Scoreboard& board, LaneId lane) {
  const auto ref = board.next(lane);
  EXPECT_TRUE(ref.has_value());
  return ref.value_or(OpRef{99, 99});
}

}  // namespace sluice::prefetch
