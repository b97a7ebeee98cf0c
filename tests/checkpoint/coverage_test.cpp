#include "engine/checkpoint/coverage.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

namespace sluice::checkpoint {
namespace {

TEST(Coverage, AgreesWithAListOfFlags) {
  EXPECT_TRUE(rc::check([] {
    constexpr std::uint64_t kEnd = 60;
    std::vector<bool> flags(kEnd, false);
    Coverage coverage;
    const int pieces = *rc::gen::inRange(0, 40);
    for (int i = 0; i < pieces; ++i) {
      const auto first = *rc::gen::inRange<std::uint64_t>(0, kEnd);
      const auto count =
          *rc::gen::inRange<std::uint64_t>(0, std::min<std::uint64_t>(12, kEnd - first));
      const auto at = flags.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = at + static_cast<std::ptrdiff_t>(count);
      const bool fresh = std::none_of(at, end, [](bool f) { return f; });
      RC_ASSERT(coverage.add(first, count) == fresh);
      if (fresh) std::fill(at, end, true);
    }
    const auto first = *rc::gen::inRange<std::uint64_t>(0, kEnd);
    const auto end = *rc::gen::inRange<std::uint64_t>(first, kEnd + 1);
    std::optional<std::uint64_t> missing;
    for (std::uint64_t i = first; i < end && !missing; ++i) {
      if (!flags[i]) missing = i;
    }
    RC_ASSERT(coverage.first_missing(first, end) == missing);
  }));
}

TEST(Coverage, PiecesInAnyOrderMakeAWhole) {
  EXPECT_TRUE(rc::check([] {
    std::vector<std::uint64_t> pieces(50);
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = i * 3;
    const auto seed = *rc::gen::inRange<std::size_t>(0, 1000);
    std::rotate(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(seed % 50),
                pieces.end());
    if (seed % 2 == 0) std::reverse(pieces.begin(), pieces.end());
    Coverage coverage;
    for (const std::uint64_t p : pieces) RC_ASSERT(coverage.add(p, 3));
    RC_ASSERT(!coverage.first_missing(0, 150));
    RC_ASSERT(coverage.first_missing(0, 151) == 150U);
  }));
}

}  // namespace
}  // namespace sluice::checkpoint
