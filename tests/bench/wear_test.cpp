#include "engine/bench/wear.h"

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

/// 7% used, and 0x0102030405 units of 512,000 bytes.
HealthPage page() {
  HealthPage page{};
  page.fill(std::byte{0xff});
  page[5] = std::byte{7};
  for (std::size_t i = 0; i < 16; ++i) page[48 + i] = std::byte{0};
  for (std::size_t i = 0; i < 5; ++i) page[48 + i] = static_cast<std::byte>(5 - i);
  return page;
}

TEST(Wear, IsReadFromTheHealthPage) {
  const Wear wear = wear_in(page());
  EXPECT_EQ(wear.percent_used, 7U);
  EXPECT_EQ(wear.written, 4328719365.0 * 512'000);
  EXPECT_EQ(text_of(wear), "7% used, 2216 TB written");
}

TEST(Wear, CountsUnitsBeyond64Bits) {
  HealthPage large = page();
  large[48 + 8] = std::byte{1};
  EXPECT_GT(wear_in(large).written, 18446744073709551616.0 * 512'000);
}

/// 7% may be anything below 8%.
TEST(Wear, SaysNoMoreOfWhatADriveEnduresThanItsPercentsTell) {
  EXPECT_DOUBLE_EQ(endurance_left({7, 80e12}), 1000e12 - 80e12);
  EXPECT_EQ(endurance_left({0, 80e12}), 0);
  EXPECT_EQ(endurance_left({105, 80e12}), 0);
}

TEST(Wear, IsNotKnownOfWhatIsNoNvmeDrive) {
  EXPECT_FALSE(wear_of("vda"));
  EXPECT_FALSE(wear_of("nvme77n1"));
}

}  // namespace
}  // namespace sluice::bench
