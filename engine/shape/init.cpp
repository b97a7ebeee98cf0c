#include "engine/shape/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

constexpr std::int32_t halves(std::uint32_t word) {
  return static_cast<std::int32_t>(word & 0xffffU) + static_cast<std::int32_t>(word >> 16);
}

/// Of one tensor, the same for all its elements.
struct Drawing {
  std::uint64_t seed, name;
  double scale;  ///< of a centred sum
};

// So many are drawn together, each step of the generator in a loop over them: that is what a
// compiler makes vectors of, of whatever width the processor has.
constexpr std::size_t kTogether = 64;
using Lanes = std::array<std::uint32_t, kTogether>;

// GCC makes three of it and picks one when the program starts: vectors of 64 bytes have a
// multiplication that the others lack, and are three times as fast as those of 16. The sanitizers
// are not there yet when it picks.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#endif
void draw(const Drawing& of, std::uint64_t first_element, std::array<float, kTogether>& out) {
  Lanes c0, c1, c2, c3;
  for (std::size_t i = 0; i < kTogether; ++i) {
    c0[i] = low(first_element + i);
    c1[i] = high(first_element + i);
    c2[i] = low(of.name);
    c3[i] = high(of.name);
  }
  PhiloxKey key = {low(of.seed), high(of.seed)};
  for (int round = 0; round < kPhiloxRounds; ++round, key = next_key(key)) {
    for (std::size_t i = 0; i < kTogether; ++i) {
      const PhiloxBlock next = philox_round({c0[i], c1[i], c2[i], c3[i]}, key);
      c0[i] = next[0];
      c1[i] = next[1];
      c2[i] = next[2];
      c3[i] = next[3];
    }
  }
  for (std::size_t i = 0; i < kTogether; ++i) {
    const std::int32_t sum = halves(c0[i]) + halves(c1[i]) + halves(c2[i]) + halves(c3[i]);
    out[i] = static_cast<float>(static_cast<double>(sum - kMeanOfSum) * of.scale);
  }
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
  const Drawing of{seed, hash(tensor.name), tensor.init_std / kDeviationOfSum};
  std::array<float, kTogether> drawn;
  for (std::size_t at = 0; at < out.size(); at += kTogether) {
    draw(of, first_element + at, drawn);
    const auto wanted = out.subspan(at, std::min(kTogether, out.size() - at));
    std::copy_n(drawn.begin(), wanted.size(), wanted.begin());
  }
}

}  // namespace sluice::shape
