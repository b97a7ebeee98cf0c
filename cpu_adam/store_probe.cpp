#include "cpu_adam/store_probe.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "engine/base/clock.h"
#include "engine/base/machine.h"
#include "engine/base/pages.h"
#include "engine/base/units.h"

namespace sluice::cpu_adam {
namespace {

constexpr int kPasses = 3;
constexpr Bytes kBytesEach = 3 * sizeof(float) + 2 * sizeof(std::uint16_t);

/// Nanoseconds per parameter.
double time_pass(const Kernels& kernels, const Workers& workers, std::span<std::byte> scratch,
                 Write write) {
  const std::size_t count = scratch.size() / kBytesEach;
  auto* master = reinterpret_cast<float*>(scratch.data());
  float* m = master + count;
  float* v = m + count;
  auto* gradient = reinterpret_cast<std::uint16_t*>(v + count);
  auto* published = gradient + count;
  const Factors factors{.clip = 1,
                        .l2 = 0,
                        .beta1 = 0.9F,
                        .one_minus_beta1 = 0.1F,
                        .beta2 = 0.95F,
                        .one_minus_beta2 = 0.05F,
                        .scale2 = 1,
                        .eps = 1e-8F,
                        .step = 1e-3F,
                        .decay = 0};
  const Nanos begin = now_ns();
  workers.for_grains(count, [&](std::size_t first, std::size_t last) {
    kernels.update({.master = master + first,
                    .m = m + first,
                    .v = v + first,
                    .gradient = {.first = {gradient + first, Elem::kBf16}},
                    .published = {published + first, Elem::kBf16},
                    .count = last - first,
                    .factors = factors,
                    .write = write});
  });
  return static_cast<double>(now_ns() - begin) / static_cast<double>(count);
}

}  // namespace

std::size_t probed_parameters(Bytes last_cache) {
  constexpr Bytes kTimes = 2, kLeast = 32_MiB, kMost = 256_MiB;
  return std::clamp(kTimes * last_cache, kLeast, kMost) / kBytesEach / kGrainElems * kGrainElems;
}

StoreTimes probe_stores(const Kernels& kernels, const Workers& workers) {
  const Bytes bytes = probed_parameters(last_cache()) * kBytesEach;
  // In large pages: zeroing small ones would take longer than the probe.
  const PageBytes pages = take_pages(bytes);
  const std::span<std::byte> scratch(pages.get(), bytes);
  time_pass(kernels, workers, scratch, Write::kCached);  // touches them
  StoreTimes best{std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
  for (int pass = 0; pass < kPasses; ++pass) {
    best.streaming_ns =
        std::min(best.streaming_ns, time_pass(kernels, workers, scratch, Write::kStreaming));
    best.cached_ns = std::min(best.cached_ns, time_pass(kernels, workers, scratch, Write::kCached));
  }
  return best;
}

}  // namespace sluice::cpu_adam
