/// Arithmetic on device bytes: first values, sums of gradients, norms, Adam.
///
/// Each function gives the bits of cpu_adam::Optimizer's of the same name, whose contract
/// ([Note: Adam arithmetic] and what stands beside the functions) is this one's.
///
/// Thread  inside a work of Stream::run(): what is asked for is done on that stream, in order, and
///         has ended when its event has come. Operands are device memory, and live until then
/// Throws  kLogic as the optimizer does, before anything is written; kDevice when the device
/// refuses
#pragma once

#include <cstddef>
#include <span>

#include "cpu_adam/optimizer.h"

namespace sluice::gpu {

class Arithmetic {
 public:
  /// `host` is what the host backend works with; it must outlive this.
  explicit Arithmetic(const cpu_adam::Optimizer& host) : host_(host) {}

  void update(const cpu_adam::Hyper& hyper, cpu_adam::State state, cpu_adam::Gradient gradient,
              cpu_adam::Published published) const;
  void grain_norms(cpu_adam::Gradient gradient, std::span<double> partials) const;
  void accumulate(std::span<float> sum, cpu_adam::Values contribution) const;
  void assign(std::span<float> sum, cpu_adam::Values contribution) const;
  void add(std::span<float> out, cpu_adam::Values a, cpu_adam::Values b) const;
  /// Every byte becomes `value`.
  void fill(std::span<std::byte> bytes, std::byte value) const;

 private:
  const cpu_adam::Optimizer& host_;
};

}  // namespace sluice::gpu
