/// A chunk's state as a drive has it where weights tell the masters' upper halves, put together
/// once more: by trying both halves that could have been rounded to the weight, with no code
/// shared with the optimizer.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/dtype.h"

namespace sluice::train {

/// `split`: lower halves, v, m; the sign of v tells which of two weights a tie was rounded to.
/// Master, m, v.
inline std::vector<float> whole_state(std::span<const std::byte> split,
                                      std::span<const std::byte> weights) {
  const std::size_t n = weights.size() / sizeof(Bf16);
  std::vector<float> whole(3 * n);
  EXPECT_EQ(split.size(), n * (sizeof(std::uint16_t) + 2 * sizeof(float)));
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t low = 0;
    Bf16 weight{};
    float m = 0, v = 0;
    std::memcpy(&low, &split[2 * i], sizeof low);
    std::memcpy(&weight, &weights[2 * i], sizeof weight);
    std::memcpy(&v, &split[2 * n + 4 * i], sizeof v);
    std::memcpy(&m, &split[6 * n + 4 * i], sizeof m);
    std::vector<float> could_be;
    for (const std::uint32_t upper : {std::uint32_t{weight.bits}, weight.bits - 1U}) {
      const auto master = std::bit_cast<float>(upper << 16 | low);
      if (to_bf16(master).bits == weight.bits) could_be.push_back(master);
    }
    EXPECT_FALSE(could_be.empty()) << "element " << i;
    if (could_be.empty()) return whole;
    // Beside zeros and infinities only one of the two is a number.
    const bool two = low == 0x8000 && weight.bits % 2 == 0 && (weight.bits & 0x7fff) % 0x7f80 != 0;
    EXPECT_EQ(could_be.size(), two ? 2U : 1U);
    whole[i] = std::signbit(v) ? could_be.front() : could_be.back();
    whole[n + i] = m;
    whole[2 * n + i] = std::fabs(v);
  }
  return whole;
}

}  // namespace sluice::train
