/// ns per parameter and GB/s of the fused update, for every instruction set, kind of store and
/// number of threads, beside a STREAM-like triad of the same run on as many threads.
///
/// GB/s counts what the program reads and writes (28 bytes per parameter with bf16, 32 with fp32),
/// not the lines that cached stores fetch first; so does the triad, which takes the better of both
/// kinds of store. roof = the update's GB/s as a percentage of the triad's.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/clock.h"

namespace sluice::cpu_adam {
namespace {

constexpr std::size_t kCount = std::size_t{32} << 20;  // 512 MiB: past every cache

struct Arrays {
  std::vector<float> master = std::vector<float>(kCount, 0.5F);
  std::vector<float> m = std::vector<float>(kCount);
  std::vector<float> v = std::vector<float>(kCount);
  std::vector<float> gradient32 = std::vector<float>(kCount, 1e-3F);
  std::vector<Bf16> gradient16 = std::vector<Bf16>(kCount, to_bf16(1e-3F));
  std::vector<float> copy32 = std::vector<float>(kCount);
  std::vector<Bf16> copy16 = std::vector<Bf16>(kCount);
};

Arrays& arrays() {
  static Arrays all;
  return all;
}

void triad_cached(float* a, const float* b, const float* c, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] + 3.0F * c[i];
}

void triad_streaming(float* a, const float* b, const float* c, std::size_t n) {
#if defined(__SSE2__)
  const __m128 scale = _mm_set1_ps(3.0F);
  const std::size_t head = std::min(n, (16 - reinterpret_cast<std::uintptr_t>(a) % 16) % 16 / 4);
  triad_cached(a, b, c, head);
  std::size_t i = head;
  for (; i + 4 <= n; i += 4) {
    _mm_stream_ps(a + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(scale, _mm_loadu_ps(c + i))));
  }
  triad_cached(a + i, b + i, c + i, n - i);
  _mm_sfence();
#else
  triad_cached(a, b, c, n);
#endif
}

/// Bytes per nanosecond of the better triad, measured once per number of threads.
double triad_gbps(unsigned threads) {
  static std::map<unsigned, double> known;
  if (const auto it = known.find(threads); it != known.end()) return it->second;
  Arrays& all = arrays();
  double best = 0;
  for (const auto triad : {triad_cached, triad_streaming}) {
    for (int pass = 0; pass < 6; ++pass) {
      const Nanos begin = now_ns();
      {
        std::vector<std::jthread> team;
        for (unsigned t = 0; t < threads; ++t) {
          const std::size_t first = kCount / threads * t;
          const std::size_t n = kCount / threads;
          team.emplace_back([&all, triad, first, n] {
            triad(all.copy32.data() + first, all.gradient32.data() + first, all.m.data() + first,
                  n);
          });
        }
      }
      const auto bytes = static_cast<double>(3 * sizeof(float) * (kCount / threads) * threads);
      best = std::max(best, bytes / static_cast<double>(now_ns() - begin));
    }
  }
  return known[threads] = best;
}

void report(benchmark::State& state, double bytes_per_parameter, unsigned threads) {
  const double done = static_cast<double>(state.iterations()) * static_cast<double>(kCount);
  using benchmark::Counter;
  state.counters["ns/param"] = Counter(done * 1e-9, Counter::kIsRate | Counter::kInvert);
  state.counters["GB/s"] = Counter(done * bytes_per_parameter * 1e-9, Counter::kIsRate);
  const double roof = triad_gbps(threads);
  state.counters["triad GB/s"] = roof;
  state.counters["roof %"] =
      Counter(done * bytes_per_parameter * 1e-9 / roof * 100, Counter::kIsRate);
}

void update(benchmark::State& state, const Options& options, DType type) {
  const Optimizer adam(options);
  triad_gbps(adam.threads());
  Arrays& all = arrays();
  const Hyper hyper{.lr = 1e-4F,
                    .weight_decay = 0.1F,
                    .bias_correction1 = bias_correction(0.9F, 10),
                    .bias_correction2 = bias_correction(0.999F, 10),
                    .clip = 0.5F};
  const bool wide = type == DType::kF32;
  const Gradient gradient = wide ? Gradient(std::span<const float>(all.gradient32))
                                 : Gradient(std::span<const Bf16>(all.gradient16));
  const Published copy =
      wide ? Published(std::span<float>(all.copy32)) : Published(std::span<Bf16>(all.copy16));
  for (auto _ : state) adam.update(hyper, {all.master, all.m, all.v}, gradient, copy);
  state.SetLabel(adam.describe());
  report(state, static_cast<double>(6 * sizeof(float) + 2 * size_of(type)), adam.threads());
}

void norm(benchmark::State& state, const Options& options, DType type) {
  const Optimizer adam(options);
  triad_gbps(adam.threads());
  Arrays& all = arrays();
  const Gradient gradient = type == DType::kF32 ? Gradient(std::span<const float>(all.gradient32))
                                                : Gradient(std::span<const Bf16>(all.gradient16));
  std::vector<double> partials(kCount / kGrainElems);
  for (auto _ : state) adam.grain_norms(gradient, partials);
  report(state, static_cast<double>(size_of(type)), adam.threads());
}

void register_all() {
  std::vector<unsigned> teams{1, 2};
  Options plain;
  plain.stores = Stores::kCached;
  if (const unsigned cores = Optimizer(plain).threads(); cores > 2) {
    teams.push_back(cores);
  }
  const auto plan = [](benchmark::internal::Benchmark* b) {
    b->UseRealTime()->Unit(benchmark::kMillisecond)->MinWarmUpTime(0.05)->MinTime(0.1);
    b->Repetitions(5)->ReportAggregatesOnly();
  };
  for (const Isa isa : available_isas()) {
    for (const unsigned threads : teams) {
      for (const DType type : {DType::kBf16, DType::kF32}) {
        for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
          const Options options{.threads = threads, .isa = isa, .stores = stores};
          plan(benchmark::RegisterBenchmark(
              fmt::format("update/{}/{}/{}/threads:{}", name_of(isa), name_of(type),
                          stores == Stores::kCached ? "cached" : "streaming", threads)
                  .c_str(),
              [=](benchmark::State& state) { update(state, options, type); }));
        }
        const Options options{.threads = threads, .isa = isa, .stores = Stores::kCached};
        plan(benchmark::RegisterBenchmark(
            fmt::format("norm/{}/{}/threads:{}", name_of(isa), name_of(type), threads).c_str(),
            [=](benchmark::State& state) { norm(state, options, type); }));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cpu_adam

int main(int argc, char** argv) {
  sluice::cpu_adam::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
