/// The calls of Arithmetic (arithmetic.h) as kernels of kernels.h: checked as the optimizer checks,
/// typed, and handed to whoever runs threads.
///
/// Launch has
///   void each(const Kernel& kernel, std::size_t threads)
///     calls kernel(t) for every t below `threads`, and maybe for some above, in any order
///   void grains(const Kernel& kernel, std::size_t threads)
///     kernel.lane(t) for all t of a grain at least, then kernel.fold(t, the lanes of t's grain)
#pragma once

#include <cstddef>
#include <span>

#include "cpu_adam/arguments.h"
#include "engine/base/units.h"
#include "gpu/kernels.h"

namespace sluice::gpu {

template <class Launch>
class KernelCalls {
 public:
  constexpr explicit KernelCalls(Launch launch) : launch_(launch) {}

  void update(const cpu_adam::Hyper& hyper, cpu_adam::State state, cpu_adam::Gradient gradient,
              cpu_adam::Published published) const {
    cpu_adam::check_update(hyper, state, gradient, published);
    Typed::read(cpu_adam::terms_at(gradient, 0), [&](const auto& terms) {
      auto g = array(terms);
      write(published, [&]<class Pub>(Pub* copy) {
        each(kernels::Update<decltype(g), Pub>{
            array(state.master.data()), array(state.m.data()), array(state.v.data()), g,
            array(copy), cpu_adam::AdamStep<cpu_adam::Scalar>(cpu_adam::factors_of(hyper)),
            state.master.size()});
      });
    });
  }

  void grain_norms(cpu_adam::Gradient gradient, std::span<double> partials) const {
    cpu_adam::check_grain_norms(gradient, partials);
    const std::size_t threads = partials.size() * kernels::Lanes::kCount;
    if (threads == 0) return;
    Typed::read(cpu_adam::terms_at(gradient, 0), [&]<class In>(const In& in) {
      launch_.grains(kernels::GrainNorms<In>{in, cpu_adam::length_of(gradient.values), kGrainElems,
                                             partials.data()},
                     threads);
    });
  }

  void accumulate(std::span<float> sum, cpu_adam::Values contribution) const {
    add(sum, std::span<const float>(sum), contribution);
  }

  void assign(std::span<float> sum, cpu_adam::Values contribution) const {
    cpu_adam::check_assign(sum, contribution);
    read(contribution, [&](const auto* in) { store(sum, array(in)); });
  }

  void add(std::span<float> out, cpu_adam::Values a, cpu_adam::Values b) const {
    cpu_adam::check_add(out, a, b);
    read(a, [&]<class A>(const A* first) {
      read(b, [&]<class B>(const B* second) {
        store(out, kernels::Sums<A, B>{array(first), array(second)});
      });
    });
  }

 private:
  using Typed = cpu_adam::Typed<cpu_adam::Scalar>;

  template <class T>
  static kernels::Array<T> array(T* data) {
    return {data};
  }
  template <class T>
  static kernels::Sums<T, T> array(const cpu_adam::Two<T>& terms) {
    return {array(terms.first), array(terms.second)};
  }
  template <class F>
  static void read(const cpu_adam::Values& values, F f) {
    Typed::read(cpu_adam::source_at(values, 0), f);
  }
  template <class F>
  static void write(const cpu_adam::Published& published, F f) {
    Typed::write(cpu_adam::sink_at(published, 0), f);
  }
  template <class In>
  void store(std::span<float> out, const In& in) const {
    each(kernels::Assign<In>{array(out.data()), in, out.size()});
  }
  template <class Kernel>
  void each(const Kernel& kernel) const {
    if (kernel.count != 0) launch_.each(kernel, div_ceil(kernel.count, kernels::kEach));
  }

  Launch launch_;
};

}  // namespace sluice::gpu
