#include "engine/tensor/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <array>

#include "engine/base/error.h"

namespace sluice::tensor {

std::span<const EnvVariable> process_environment() {
  static constexpr std::array kVariables{
      EnvVariable{"OMP_WAIT_POLICY", "passive",
                  "idle OpenMP threads sleep, so that the other lanes get the cores"},
      EnvVariable{"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64",
                  "oneDNN keeps a primitive per shape; uncapped it grows with every new one"},
      EnvVariable{"LRU_CACHE_CAPACITY", "64", "the same for LibTorch's own cache of primitives"},
  };
  return kVariables;
}

void set_compute_threads(int threads) {
  SLUICE_CHECK(threads >= 1, kConfig,
               fmt::format("compute.threads: asked {}, needs at least 1", threads));
  at::set_num_threads(threads);
}

void set_deterministic() {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(/*b=*/true, /*warn_only=*/false);
  // Otherwise every fresh tensor is filled with NaN first, which costs a pass over memory.
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace sluice::tensor
