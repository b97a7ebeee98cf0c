#include "engine/executor/records.h"

#include <gtest/gtest.h>

namespace sluice::executor {
namespace {

TEST(Records, AProgramThatOvertookAnOlderOneIsReportedAfterIt) {
  Records records;
  records.append(50);
  records.append(51);
  records.append(52);
  EXPECT_EQ(records.tag(1), 51U);
  records.finish({1, 0, 7, {}, {1}});
  EXPECT_TRUE(records.take().empty());
  records.finish({0, 0, 9, {}, {2}});
  const auto taken = records.take();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].tag, 50U);
  EXPECT_EQ(taken[0].end, 9);
  EXPECT_EQ(taken[1].instance, 1U);
  EXPECT_EQ(taken[1].peak_slots, std::vector<std::uint32_t>{1});
  EXPECT_EQ(records.tag(2), 52U);
  records.finish({2, 0, 10, {}, {}});
  EXPECT_EQ(records.take().size(), 1U);
}

}  // namespace
}  // namespace sluice::executor
