#include "engine/tensor/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sys/prctl.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/tensor/backend.h"

// LibTorch links MKL into itself and exports what mkl_cbwr_get() calls; null where it has no MKL.
extern "C" __attribute__((weak)) int mkl_serv_cbwr_get(int what);

namespace sluice::tensor {
namespace {

using backend::Variable;

constexpr std::array kVariables{
    // Idle OpenMP threads sleep, so that the other lanes get the cores.
    Variable{"OMP_WAIT_POLICY", "passive"},
    // MKL chooses its path by the CPU alone, not by addresses (as it does on AMD otherwise), and
    // adds in one order. AUTO is its best path here; it turns others down on CPUs that are not
    // Intel's.
    Variable{"MKL_CBWR", "AUTO"},
    // oneDNN keeps a primitive per shape; uncapped it grows with every new one.
    Variable{"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64"},
    // The same for LibTorch's own cache of primitives.
    Variable{"LRU_CACHE_CAPACITY", "64"},
};

/// Of an entry NAME=VALUE the value; nullptr where it has another name.
const char* value_of(std::string_view name, const char* entry) {
  return std::string_view(entry).starts_with(name) && entry[name.size()] == '='
             ? entry + name.size() + 1
             : nullptr;
}

/// nullptr also of an empty one: oneDNN takes no notice of it, and MKL would take it for a name.
const char* given(std::string_view name, char* const* environment) {
  for (; *environment != nullptr; ++environment) {
    const char* value = value_of(name, *environment);
    if (value != nullptr) return *value != 0 ? value : nullptr;
  }
  return nullptr;
}

std::vector<Variable> missing_in(char* const* environment) {
  std::vector<Variable> missing;
  for (const auto some : {std::span<const Variable>(kVariables), backend::variables()}) {
    for (const Variable& variable : some) {
      if (given(variable.name, environment) == nullptr) missing.push_back(variable);
    }
  }
  return missing;
}

/// As a function of .preinit_array: no library has run its constructors. Nothing here needs them.
void start_in_environment(int argc, char** argv, char** environment) {
  const std::vector<Variable> missing = missing_in(environment);
  if (missing.empty()) {
    // What starts /proc/self/exe is called exe otherwise, in `top` and by `pkill`.
    if (argc > 0) ::prctl(PR_SET_NAME, ::basename(argv[0]));
    return;
  }
  std::vector<std::string> added;
  for (const Variable& variable : missing) {
    added.push_back(std::string(variable.name) + "=" + variable.value);
  }
  std::vector<char*> whole;
  for (; *environment != nullptr; ++environment) {
    const bool replaced = std::ranges::any_of(missing, [&](const Variable& variable) {
      return value_of(variable.name, *environment) != nullptr;
    });
    if (!replaced) whole.push_back(*environment);
  }
  for (std::string& entry : added) whole.push_back(entry.data());
  whole.push_back(nullptr);
  ::execve("/proc/self/exe", argv, whole.data());
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)(int, char**,
                                                                   char**) = start_in_environment;

std::string instructions() {
  std::set<std::string> known;
  for (const auto& [name, value] : at::cpu::get_cpu_capabilities()) {
    if (value.isBool() && value.toBool()) known.insert(name);
  }
  return fmt::format("{}", fmt::join(known, " "));
}

bool is_intel() {
#ifdef __x86_64__
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

// mkl_types.h: MKL_CBWR_*.
std::string mkl_mode() {
  if (mkl_serv_cbwr_get == nullptr) return "none";
  constexpr int kAll = -1;
  constexpr int kStrict = 0x10000;
  constexpr std::array kBranches{"OFF",  "OFF",        "AUTO",   "COMPATIBLE",    "SSE2",
                                 "SSE3", "SSSE3",      "SSE4_1", "SSE4_2",        "AVX",
                                 "AVX2", "AVX512_MIC", "AVX512", "AVX512_MIC_E1", "AVX512_E1"};
  const int mode = mkl_serv_cbwr_get(kAll);
  const auto branch = static_cast<std::size_t>(mode & (kStrict - 1));
  std::string name = branch < kBranches.size() ? kBranches[branch] : std::to_string(branch);
  if ((mode & kStrict) != 0) name += ",STRICT";
  if (const char* limit = std::getenv("MKL_ENABLE_INSTRUCTIONS")) {
    name += fmt::format(" up to {}", limit);
  }
  return name;
}

std::string onednn_limit() {
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    if (const char* limit = given(name, environ)) return limit;
  }
  return "ALL";
}

}  // namespace

void require_process_environment() {
  // Where it could not be started again the run is slower, not wrong: MKL reads its own when first
  // used.
  for (const Variable& variable : missing_in(environ)) {
    ::setenv(variable.name, variable.value, 1);
  }
}

bool is_bound() {
  return omp_get_proc_bind() != omp_proc_bind_false;
}

void set_compute_threads(int threads) {
  SLUICE_CHECK(threads >= 1, kConfig,
               fmt::format("compute.threads: asked {}, needs at least 1", threads));
  SLUICE_CHECK(!is_bound(), kEnv, fmt::format("OpenMP {}; {}", kBound, kUnbind));
  const int most = omp_get_thread_limit();
  SLUICE_CHECK(
      threads <= most, kConfig,
      fmt::format("compute.threads: asked {}, OMP_THREAD_LIMIT allows {}; raise or unset it",
                  threads, most));
  omp_set_dynamic(0);  // what OMP_DYNAMIC allows: fewer threads while the machine is busy
  at::set_num_threads(threads);
}

void set_deterministic() {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(/*b=*/true, /*warn_only=*/false);
  // Otherwise every fresh tensor is filled with NaN first, which costs a pass over memory.
  context.setDeterministicFillUninitializedMemory(false);
  backend::set_deterministic();
}

void allow_tf32() {
  backend::allow_tf32();
}

CodePaths code_paths() {
  return {TORCH_VERSION, instructions(), is_intel(), at::cpu::init_amx(), at::get_cpu_capability(),
          mkl_mode(),    onednn_limit()};
}

}  // namespace sluice::tensor
