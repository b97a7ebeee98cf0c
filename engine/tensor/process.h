/// What LibTorch takes from its process: environment variables, threads, modes and code paths.
#pragma once

#include <string>

namespace sluice::tensor {

/// First of all in main(), of tests and benchmarks too: sets the variables that LibTorch's
/// libraries read, where the user has not set them himself. Some are read before main(), so a
/// program that calls this starts itself again with them, before those libraries have set
/// themselves up for nothing.
void require_process_environment();

/// Whether OpenMP bound this process before main(), and with it every thread of every lane: where
/// OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY say so.
bool is_bound();
/// What it did then, and what helps: for people.
inline constexpr const char* kBound = "has bound this process to its first place, mostly one core";
inline constexpr const char* kUnbind =
    "unset OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY; taskset says which cores a run has";

/// The number of threads is part of a run's numbers: another number may give other bits. All of
/// them work in every op, however busy the machine is.
///
/// Thread  the compute thread, before its first op; OpenMP and MKL keep it per thread
/// Throws  kConfig when OpenMP may not start so many; kEnv when is_bound()
void set_compute_threads(int threads);

/// Asks LibTorch for kernels that give the same bits in every repeat, and for an error where it has
/// none. Once, at the start.
void set_deterministic();

/// Products of fp32 round their factors to TF32, 10 bits of fraction; sums stay fp32. After
/// set_deterministic(), which keeps it off.
///
/// Throws  kLogic where the build is not for CUDA
void allow_tf32();

/// Which code the libraries run here. Their bits hold for one CPU model, one such value and one
/// number of threads.
struct CodePaths {
  std::string libtorch;      ///< its version
  std::string instructions;  ///< of the CPU, as LibTorch sees it: "avx avx2 ..."
  bool intel = false;        ///< who made it
  bool amx = false;          ///< this process may use its tiles, where the CPU has any
  std::string aten;          ///< "AVX512", "AVX2" or "DEFAULT"; ATEN_CPU_CAPABILITY lowers it
  std::string mkl;           ///< its reproducible mode, or OFF; what MKL_CBWR came to
  std::string onednn;        ///< the most it may use, as ONEDNN_MAX_CPU_ISA says; ALL without that
};
CodePaths code_paths();

}  // namespace sluice::tensor
