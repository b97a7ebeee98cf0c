#include "engine/base/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string>

namespace sluice {
namespace {

bool is_mapped(const std::byte* data) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  while (std::getline(maps, line)) {
    std::istringstream text(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    text >> std::hex >> begin >> dash >> end;
    if (begin <= at && at < end) return true;
  }
  return false;
}

TEST(Pages, AreZeroAndBeginWhereDrivesTakeThem) {
  for (const Bytes n : {Bytes{1}, kAlignment, 4_MiB - 1, 4_MiB, 4_MiB + 1, 9_MiB}) {
    const PageBytes pages = take_pages(n);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.get()) % kAlignment, 0U) << n;
    EXPECT_TRUE(std::all_of(pages.get(), pages.get() + n, [](std::byte byte) {
      return byte == std::byte{0};
    })) << n;
    std::fill(pages.get(), pages.get() + n, std::byte{1});
  }
}

TEST(Pages, OfLargeBlocksBeginOnALargePage) {
  for (int i = 0; i < 3; ++i) {
    const PageBytes small = take_pages(kAlignment);  // so that the next one begins anywhere
    const PageBytes large = take_pages(5_MiB);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.get()) % 2_MiB, 0U);
  }
}

TEST(Pages, GoBackToTheKernel) {
  PageBytes pages = take_pages(64_MiB + 1);
  const std::byte* first = pages.get();
  const std::byte* last = first + 64_MiB;
  EXPECT_TRUE(is_mapped(first));
  EXPECT_TRUE(is_mapped(last));
  pages.reset();
  EXPECT_FALSE(is_mapped(first));
  EXPECT_FALSE(is_mapped(last));
}

TEST(Pages, ThatAreTooManyAreNone) {
  EXPECT_EQ(map_pages(std::numeric_limits<Bytes>::max()), nullptr);
  EXPECT_EQ(map_pages(Bytes{1} << 60), nullptr);
  EXPECT_THROW(take_pages(Bytes{1} << 60), std::bad_alloc);
}

}  // namespace
}  // namespace sluice
