#include "engine/bench/roof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace sluice::bench {
namespace {

using cpu_adam::Stores;

constexpr std::size_t kParameters = 96;

struct alignas(64) Line {
  std::byte bytes[64];
};

/// On lines.
class Memory {
 public:
  Memory(std::size_t n, std::byte value) : lines_(n / sizeof(Line)) {
    std::ranges::fill(bytes(), value);
  }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(lines_)); }
  bool holds(std::byte value) {
    return std::ranges::all_of(bytes(), [&](std::byte one) { return one == value; });
  }

 private:
  std::vector<Line> lines_;
};

/// Stores, and bytes of a gradient.
class Update : public testing::TestWithParam<std::tuple<Stores, std::size_t>> {
 protected:
  void touch(std::uint32_t mark) {
    touch_update(std::get<0>(GetParam()),
                 {master_.bytes(), m_.bytes(), v_.bytes(), gradient_.bytes(), published_.bytes()},
                 mark);
  }

  const std::size_t width_ = std::get<1>(GetParam());
  Memory master_{4 * kParameters, std::byte{0x10}};
  Memory m_{4 * kParameters, std::byte{0x20}};
  Memory v_{4 * kParameters, std::byte{0x30}};
  Memory gradient_{width_ * kParameters, std::byte{0x01}};
  Memory published_{width_ * kParameters, std::byte{0x40}};
};

TEST_P(Update, TouchesEveryByte) {
  touch(0xffffffff);
  EXPECT_TRUE(master_.holds(std::byte{0x11}));
  EXPECT_TRUE(m_.holds(std::byte{0x21}));
  EXPECT_TRUE(v_.holds(std::byte{0x31}));
  EXPECT_TRUE(published_.holds(std::byte{0xfe}));
}

TEST_P(Update, LeavesTheStateAsItIsWithoutAMark) {
  touch(0);
  EXPECT_TRUE(master_.holds(std::byte{0x10}));
  EXPECT_TRUE(m_.holds(std::byte{0x20}));
  EXPECT_TRUE(v_.holds(std::byte{0x30}));
  EXPECT_TRUE(published_.holds(std::byte{0x01}));
}

INSTANTIATE_TEST_SUITE_P(Roof, Update,
                         testing::Combine(testing::Values(Stores::kCached, Stores::kStreaming),
                                          testing::Values(2U, 4U)));

TEST(TouchRead, SeesEveryWord) {
  Memory memory(512, std::byte{0});
  EXPECT_EQ(touch_read(memory.bytes()), 0U);
  for (std::size_t i = 0; i < 512; i += 4) {
    memory.bytes()[i] = std::byte{7};
    EXPECT_EQ(touch_read(memory.bytes()), 7U) << i;
    memory.bytes()[i] = std::byte{0};
  }
}

TEST(TouchCopy, CopiesEveryByte) {
  Memory from(512, std::byte{0});
  for (std::size_t i = 0; i < 512; ++i) from.bytes()[i] = static_cast<std::byte>(i * 7);
  for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
    Memory to(512, std::byte{0xff});
    touch_copy(stores, to.bytes(), from.bytes());
    EXPECT_TRUE(std::ranges::equal(to.bytes(), from.bytes()));
  }
}

}  // namespace
}  // namespace sluice::bench
