#include "engine/base/trace.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Trace, KeepsTheLastSpansOldestFirst) {
  Trace trace(2);
  for (Nanos t = 0; t < 3; ++t) trace.add({.track = 1, .begin = t, .end = t + 1});
  const auto spans = trace.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].begin, 1);
  EXPECT_EQ(spans[1].begin, 2);
}

}  // namespace
}  // namespace sluice
