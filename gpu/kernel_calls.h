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
    read(gradient, [&]<class Grad>(const Grad* g) {
      write(published, [&]<class Pub>(Pub* copy) {
        each(kernels::Update<Grad, Pub>{
            array(state.master.data()), array(state.m.data()), array(state.v.data()), array(g),
            array(copy), cpu_adam::AdamStep<cpu_adam::Scalar>(cpu_adam::factors_of(hyper)),
            state.master.size()});
      });
    });
  }

  void grain_norms(cpu_adam::Gradient gradient, std::span<double> partials) const {
    cpu_adam::check_grain_norms(gradient, partials);
    const std::size_t threads = partials.size() * kernels::Lanes::kCount;
    if (threads == 0) return;
    read(gradient, [&]<class In>(const In* in) {
      launch_.grains(
          kernels::GrainNorms<In>{in, cpu_adam::length_of(gradient), kGrainElems, partials.data()},
          threads);
    });
  }

  void accumulate(std::span<float> sum, cpu_adam::Gradient contribution) const {
    add(sum, std::span<const float>(sum), contribution);
  }

  void assign(std::span<float> sum, cpu_adam::Gradient contribution) const {
    cpu_adam::check_assign(sum, contribution);
    read(contribution, [&]<class In>(const In* in) {
      each(kernels::Assign<In>{array(sum.data()), array(in), sum.size()});
    });
  }

  void add(std::span<float> out, cpu_adam::Gradient a, cpu_adam::Gradient b) const {
    cpu_adam::check_add(out, a, b);
    read(a, [&]<class A>(const A* first) {
      read(b, [&]<class B>(const B* second) {
        each(kernels::Add<A, B>{array(out.data()), array(first), array(second), out.size()});
      });
    });
  }

 private:
  using Typed = cpu_adam::Typed<cpu_adam::Scalar>;

  template <class T>
  static kernels::Array<T> array(T* data) {
    return {data};
  }
  template <class F>
  static void read(const cpu_adam::Gradient& gradient, F f) {
    Typed::read(cpu_adam::source_at(gradient, 0), f);
  }
  template <class F>
  static void write(const cpu_adam::Published& published, F f) {
    Typed::write(cpu_adam::sink_at(published, 0), f);
  }
  template <class Kernel>
  void each(const Kernel& kernel) const {
    if (kernel.count != 0) launch_.each(kernel, div_ceil(kernel.count, kernels::kEach));
  }

  Launch launch_;
};

}  // namespace sluice::gpu
