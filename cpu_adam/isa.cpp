#include "cpu_adam/isa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <xsimd/xsimd.hpp>

#include "cpu_adam/kernel.h"
#include "engine/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sluice::cpu_adam {

#if defined(__x86_64__)
extern template struct KernelsFor<xsimd::avx512bw>;
extern template struct KernelsFor<xsimd::fma3<xsimd::avx2>>;
extern template struct KernelsFor<xsimd::sse2>;
#elif defined(__aarch64__)
extern template struct KernelsFor<xsimd::neon64>;
#endif
extern template struct KernelsFor<Scalar>;

namespace {

template <class Arch>
constexpr Kernels kTable = {&KernelsFor<Arch>::update, &KernelsFor<Arch>::sum_squares,
                            &KernelsFor<Arch>::add,    &KernelsFor<Arch>::convert,
                            &KernelsFor<Arch>::join,   &KernelsFor<Arch>::split};

struct Rung {
  Isa isa;
  const Kernels* kernels;
  bool available;
};

#if defined(__x86_64__)
// By cpuid, for Clang 16 does not know it by name; its registers are those of AVX.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

// Best first. __builtin_cpu_supports also asks whether the operating system saves the registers.
std::vector<Rung> find_ladder() {
  std::vector<Rung> ladder;
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  ladder.push_back({Isa::kAvx512, &kTable<xsimd::avx512bw>, avx512});
  ladder.push_back({Isa::kAvx2, &kTable<xsimd::fma3<xsimd::avx2>>, avx2});
  ladder.push_back({Isa::kSse2, &kTable<xsimd::sse2>, true});
#elif defined(__aarch64__)
  ladder.push_back({Isa::kNeon, &kTable<xsimd::neon64>, true});
#endif
  ladder.push_back({Isa::kScalar, &kTable<Scalar>, true});
  std::erase_if(ladder, [](const Rung& r) { return !r.available; });
  return ladder;
}

const std::vector<Rung>& ladder() {
  static const std::vector<Rung> found = find_ladder();
  return found;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kAuto:
      return "auto";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kSse2:
      return "sse2";
    case Isa::kNeon:
      return "neon";
    case Isa::kScalar:
      return "scalar";
  }
  return "unknown";
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Rung& r : ladder()) isas.push_back(r.isa);
  return isas;
}

Isa choose_isa(Isa wanted) {
  const std::vector<Isa> isas = available_isas();
  if (wanted == Isa::kAuto) return isas.front();
  if (std::ranges::find(isas, wanted) != isas.end()) return wanted;
  std::vector<std::string_view> names;
  for (Isa isa : isas) names.push_back(name_of(isa));
  throw Error(Errc::kConfig, fmt::format("cpu_adam.isa: asked {}, this machine runs {}; use one of "
                                         "these or auto",
                                         name_of(wanted), fmt::join(names, ", ")));
}

const Kernels& kernels_of(Isa isa) {
  const auto rung = std::ranges::find(ladder(), choose_isa(isa), &Rung::isa);
  return *rung->kernels;
}

}  // namespace sluice::cpu_adam
