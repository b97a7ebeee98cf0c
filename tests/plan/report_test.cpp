#include <gtest/gtest.h>

#include "engine/plan/plan.h"

namespace sluice::plan {
namespace {

Plan plan_of(const Limits& minimum, const Limits& planned, const Limits& limits) {
  Plan plan;
  plan.minimum = minimum;
  plan.planned = planned;
  plan.limits = limits;
  return plan;
}

TEST(Report, HasOneLinePerTierInUse) {
  EXPECT_EQ(report(plan_of({2_GiB, 4_GiB, 8_GiB}, {3_GiB, 5_GiB, 8_GiB}, {6_GiB, 8_GiB, 16_GiB})),
            "gpu  tier: serial minimum 2.0 GiB, planned 3.0 GiB of 6.0 GiB\n"
            "cpu  tier: serial minimum 4.0 GiB, planned 5.0 GiB of 8.0 GiB\n"
            "nvme tier: serial minimum 8.0 GiB, planned 8.0 GiB of 16.0 GiB");
}

TEST(Report, LeavesOutATierThatIsNotUsed) {
  EXPECT_EQ(
      report(plan_of({2_GiB, 4_GiB, 0}, {3_GiB, 5_GiB, 0}, {6_GiB, 8_GiB, 16_GiB})).find("nvme"),
      std::string::npos);
}

TEST(Report, WarnsBelowOneAndAHalfTimesTheMinimumOfTheGpuTier) {
  const auto tight = [](Bytes limit) {
    const Plan plan = plan_of({2_GiB, 4_GiB, 0}, {2_GiB, 4_GiB, 0}, {limit, 4_GiB, 0});
    return report(plan).find("tight") != std::string::npos;
  };
  EXPECT_TRUE(tight(2_GiB));
  EXPECT_TRUE(tight(3_GiB - 1));
  EXPECT_FALSE(tight(3_GiB));
}

}  // namespace
}  // namespace sluice::plan
