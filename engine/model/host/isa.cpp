#include "engine/model/host/isa.h"

#include "engine/model/host/rows.h"

namespace sluice::model::rows {

#if defined(__x86_64__)
extern template struct KernelsFor<Avx512>;
extern template struct KernelsFor<Avx2>;
#endif
extern template struct KernelsFor<Base>;

namespace {

template <class Arch>
constexpr Kernels kTable = {&KernelsFor<Arch>::norm,
                            &KernelsFor<Arch>::norm_backward,
                            &KernelsFor<Arch>::turn,
                            &KernelsFor<Arch>::activate,
                            &KernelsFor<Arch>::activate_backward,
                            &KernelsFor<Arch>::see,
                            &KernelsFor<Arch>::softmax_backward,
                            &KernelsFor<Arch>::look_up,
                            &KernelsFor<Arch>::sum_rows,
                            &KernelsFor<Arch>::sum_places,
                            &KernelsFor<Arch>::fold,
                            &KernelsFor<Arch>::weigh,
                            &KernelsFor<Arch>::weigh_backward,
                            &KernelsFor<Arch>::dot_rows,
                            &KernelsFor<Arch>::round_rows,
                            &KernelsFor<Arch>::round_columns};

// __builtin_cpu_supports also asks whether the operating system saves the registers.
std::vector<Isa> find_isas() {
  std::vector<Isa> isas;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    isas.push_back({"avx512", &kTable<Avx512>});
  }
  if (__builtin_cpu_supports("avx2")) isas.push_back({"avx2", &kTable<Avx2>});
#endif
  isas.push_back({"base", &kTable<Base>});
  return isas;
}

const Kernels*& current() {
  static const Kernels* kernels = available_isas().front().kernels;
  return kernels;
}

}  // namespace

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = find_isas();
  return found;
}

const Kernels& kernels() {
  return *current();
}

void use(const Isa& isa) {
  current() = isa.kernels;
}

}  // namespace sluice::model::rows
