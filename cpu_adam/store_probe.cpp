#include "cpu_adam/store_probe.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace sluice::cpu_adam {
namespace {

constexpr std::size_t kCount = std::size_t{2} << 20;
constexpr int kPasses = 3;

// Anonymous memory, in huge pages where the system has them: zeroing small ones would take longer
// than the probe.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SLUICE_CHECK(data_ != MAP_FAILED, kEnv,
                 "cpu_adam: no " + format_bytes(bytes) +
                     " for the probe of stores; set cpu_adam.stores to streaming or cached");
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Scratch() { munmap(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

double time_pass(const Kernels& kernels, const Workers& workers, const Scratch& scratch,
                 Write write) {
  auto* master = reinterpret_cast<float*>(scratch.data());
  float* m = master + kCount;
  float* v = m + kCount;
  auto* gradient = reinterpret_cast<std::uint16_t*>(v + kCount);
  auto* published = gradient + kCount;
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
  workers.for_grains(kCount, [&](std::size_t first, std::size_t last) {
    kernels.update({.master = master + first,
                    .m = m + first,
                    .v = v + first,
                    .gradient = {gradient + first, Elem::kBf16},
                    .published = {published + first, Elem::kBf16},
                    .count = last - first,
                    .factors = factors,
                    .write = write});
  });
  return static_cast<double>(now_ns() - begin) / kCount;
}

}  // namespace

StoreTimes probe_stores(const Kernels& kernels, const Workers& workers) {
  const Scratch scratch(kCount * (3 * sizeof(float) + 2 * sizeof(std::uint16_t)));
  time_pass(kernels, workers, scratch, Write::kCached);  // touches the pages
  StoreTimes best{std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
  for (int pass = 0; pass < kPasses; ++pass) {
    best.streaming_ns =
        std::min(best.streaming_ns, time_pass(kernels, workers, scratch, Write::kStreaming));
    best.cached_ns = std::min(best.cached_ns, time_pass(kernels, workers, scratch, Write::kCached));
  }
  return best;
}

}  // namespace sluice::cpu_adam
