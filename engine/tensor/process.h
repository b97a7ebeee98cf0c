/// What LibTorch takes from its process: threads, modes and environment variables.
#pragma once

#include <span>

namespace sluice::tensor {

struct EnvVariable {
  const char* name;
  const char* value;
  const char* why;
};

/// Variables that must be in the environment before the process starts: OpenMP reads its own when
/// it is loaded. The starter of the process sets those that the user has not set.
std::span<const EnvVariable> process_environment();

/// The number of threads is part of a run's numbers: another number may give other bits.
///
/// Thread  the compute thread, before its first op; OpenMP and MKL keep it per thread
void set_compute_threads(int threads);

/// Asks LibTorch for kernels that give the same bits in every repeat, and for an error where it has
/// none. Once, at the start.
void set_deterministic();

}  // namespace sluice::tensor
