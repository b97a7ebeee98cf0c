#include "tests/train/kernel_watch.h"

#include <array>
#include <atomic>
#include <cstddef>

#include "cpu_adam/arena.h"
#include "cpu_adam/isa.h"
#include "cpu_adam/kernel.h"

namespace sluice::train {

using cpu_adam::Arena;
using cpu_adam::Isa;
using cpu_adam::Kernels;
using cpu_adam::RangeJob;

// The linker sends calls of X to __wrap_X, and those of __real_X to X.
#define SLUICE_KERNELS_OF "_ZN6sluice8cpu_adam10kernels_ofENS0_3IsaE"
#define SLUICE_ARENA_RUN "_ZNK6sluice8cpu_adam5Arena3runERNS0_8RangeJobEmm"

const Kernels& real_kernels_of(Isa isa) asm("__real_" SLUICE_KERNELS_OF);
void real_run(const Arena* arena, RangeJob& job, std::size_t count,
              std::size_t at_least) asm("__real_" SLUICE_ARENA_RUN);

namespace {

thread_local bool in_cut_range = false;

struct Counter {
  std::atomic<std::uint64_t> all{0}, cut{0};
  void count() {
    ++all;
    if (in_cut_range) ++cut;
  }
  Calls take() { return {all.exchange(0), cut.exchange(0)}; }
};

struct Counters {
  Counter updates, norms, sums;
  std::atomic<std::uint64_t> streamed{0};
};

constexpr std::size_t kIsas = static_cast<std::size_t>(Isa::kScalar) + 1;
std::array<Counters, kIsas> counters;

bool on_line(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 64 == 0;
}

/// The kernels of an instruction set, counted.
template <std::size_t kIsa>
struct Watched {
  static const Kernels& real() {
    static const Kernels& kernels = real_kernels_of(static_cast<Isa>(kIsa));
    return kernels;
  }
  static void update(const cpu_adam::UpdateArgs& args) noexcept {
    counters[kIsa].updates.count();
    const bool on_lines = on_line(args.master) && on_line(args.halves.low) && on_line(args.m) &&
                          on_line(args.v) && on_line(args.published.data);
    if (args.write == cpu_adam::Write::kStreaming && on_lines)
      counters[kIsa].streamed += args.count;
    real().update(args);
  }
  static double sum_squares(cpu_adam::Terms in, std::size_t count) noexcept {
    counters[kIsa].norms.count();
    return real().sum_squares(in, count);
  }
  static void add(float* out, cpu_adam::Source a, cpu_adam::Source b, std::size_t count) noexcept {
    counters[kIsa].sums.count();
    real().add(out, a, b, count);
  }
  static void convert(cpu_adam::Sink out, cpu_adam::Source in, std::size_t count) noexcept {
    real().convert(out, in, count);
  }
  static void join(float* master, float* v, cpu_adam::Halves in, const float* marked,
                   std::size_t count) noexcept {
    real().join(master, v, in, marked, count);
  }
  static void split(cpu_adam::LowBits* low, float* marked, const float* master, const float* v,
                    std::size_t count) noexcept {
    real().split(low, marked, master, v, count);
  }
  static constexpr Kernels kTable = {&update, &sum_squares, &add, &convert, &join, &split};
};

template <std::size_t... kIndex>
const Kernels& watched_table(Isa isa, std::index_sequence<kIndex...>) {
  constexpr std::array<const Kernels*, sizeof...(kIndex)> kTables = {&Watched<kIndex>::kTable...};
  return *kTables[static_cast<std::size_t>(isa)];
}

/// Marks what runs in a part of [0, count).
class WatchedJob final : public RangeJob {
 public:
  WatchedJob(RangeJob& inner, std::size_t count) : inner_(inner), count_(count) {
    made_.store(true, std::memory_order_release);
  }
  ~WatchedJob() { static_cast<void>(ran_.load(std::memory_order_acquire)); }
  WatchedJob(const WatchedJob&) = delete;
  WatchedJob& operator=(const WatchedJob&) = delete;

  void run(std::size_t first, std::size_t last) override {
    static_cast<void>(made_.load(std::memory_order_acquire));
    in_cut_range = last - first < count_;
    inner_.run(first, last);
    in_cut_range = false;
    ran_.fetch_add(1, std::memory_order_release);
  }

 private:
  RangeJob& inner_;
  const std::size_t count_;
  // oneTBB orders all this; ThreadSanitizer cannot see that, and sees these.
  std::atomic<bool> made_{false};
  std::atomic<int> ran_{0};
};

}  // namespace

const Kernels& watched_kernels_of(Isa isa) asm("__wrap_" SLUICE_KERNELS_OF);
const Kernels& watched_kernels_of(Isa isa) {
  return watched_table(cpu_adam::choose_isa(isa), std::make_index_sequence<kIsas>{});
}

void watched_run(const Arena* arena, RangeJob& job, std::size_t count,
                 std::size_t at_least) asm("__wrap_" SLUICE_ARENA_RUN);
void watched_run(const Arena* arena, RangeJob& job, std::size_t count, std::size_t at_least) {
  WatchedJob watched(job, count);
  real_run(arena, watched, count, at_least);
}

std::map<Isa, KernelWork> take_kernel_work() {
  std::map<Isa, KernelWork> work;
  for (std::size_t i = 0; i < kIsas; ++i) {
    Counters& c = counters[i];
    const KernelWork of_isa{c.updates.take(), c.norms.take(), c.sums.take(),
                            c.streamed.exchange(0)};
    if (of_isa.updates.all > 0) work[static_cast<Isa>(i)] = of_isa;
  }
  return work;
}

}  // namespace sluice::train
