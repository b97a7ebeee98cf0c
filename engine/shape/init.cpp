#include "engine/shape/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/base/error.h"
#include "engine/shape/philox.h"

namespace sluice::shape {
namespace {

// FNV-1a: part of what a seed means, so it may never change.
constexpr std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : text) {
    h ^= static_cast<unsigned char>(c);
    h *= 0x100000001b3U;
  }
  return h;
}

constexpr std::uint32_t low(std::uint64_t n) {
  return static_cast<std::uint32_t>(n);
}
constexpr std::uint32_t high(std::uint64_t n) {
  return static_cast<std::uint32_t>(n >> 32);
}

// Eight uniform numbers of 0 to 65535 have this mean; the variance of their sum is
// 8 * (2^32 - 1) / 12.
constexpr std::int32_t kMeanOfSum = 8 * 65535 / 2;
constexpr double kDeviationOfSum = 53509.91992145008;

std::int32_t centred_sum(const PhiloxBlock& bits) {
  std::int32_t sum = -kMeanOfSum;
  for (const std::uint32_t word : bits) {
    sum += static_cast<std::int32_t>(word & 0xffffU) + static_cast<std::int32_t>(word >> 16);
  }
  return sum;
}

}  // namespace

void initial_values(std::uint64_t seed, const TensorSpec& tensor, std::uint64_t first_element,
                    std::span<float> out) {
  const std::uint64_t numel = tensor.numel();
  SLUICE_CHECK(first_element <= numel && out.size() <= numel - first_element, kLogic,
               fmt::format("{}: asked for elements {} to {} of {}", tensor.name, first_element,
                           first_element + out.size(), numel));
  if (tensor.init != Init::kNormal) {
    std::fill(out.begin(), out.end(), tensor.init == Init::kOnes ? 1.0F : 0.0F);
    return;
  }
  const std::uint64_t name = hash(tensor.name);
  const double scale = tensor.init_std / kDeviationOfSum;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t element = first_element + i;
    const PhiloxBlock bits = philox4x32_10({low(element), high(element), low(name), high(name)},
                                           {low(seed), high(seed)});
    out[i] = static_cast<float>(static_cast<double>(centred_sum(bits)) * scale);
  }
}

}  // namespace sluice::shape
