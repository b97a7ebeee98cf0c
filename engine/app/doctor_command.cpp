#include <fmt/format.h>
#include <sys/utsname.h>

#include <string>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/config/load.h"
#include "engine/doctor/drives.h"
#include "engine/doctor/machine.h"
#include "engine/tensor/process.h"

namespace sluice::app {
namespace {

using doctor::Finding;

void add(std::vector<Finding>& findings, std::vector<Finding> more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

Finding versions() {
  utsname kernel{};
  ::uname(&kernel);
  return {doctor::Verdict::kOk, "versions",
          fmt::format("sluice {}, LibTorch {}, {} {}", SLUICE_VERSION,
                      tensor::code_paths().libtorch, kernel.sysname, kernel.release),
          ""};
}

/// Nothing, where a run has the cores that it is given.
std::vector<Finding> binding() {
  if (!tensor::is_bound()) return {};
  return {{doctor::Verdict::kMissing, "OpenMP", tensor::kBound, tensor::kUnbind}};
}

/// Those that a run of this file writes to.
std::vector<Finding> folders_of(const config::Config& config) {
  std::vector<Finding> findings = {
      doctor::folder("output_dir", config.output_dir, doctor::Holds::kFiles)};
  const schedule::Options& homes = config.zero_optimization;
  const bool uses_nvme = homes.offload_param == schedule::ParamHome::kNvme ||
                         homes.offload_optimizer == schedule::OptimizerHome::kNvme ||
                         homes.offload_activation == schedule::ActivationHome::kNvme;
  if (!uses_nvme) return findings;
  std::vector<std::string> paths = config.tiers.nvme.paths;
  if (paths.empty()) paths = {config.output_dir};
  const bool may_be_ram = config.tiers.nvme.allow_ram_path;
  for (const std::string& path : paths) {
    findings.push_back(doctor::folder("tiers.nvme.paths", path,
                                      may_be_ram ? doctor::Holds::kFiles : doctor::Holds::kTier));
  }
  return findings;
}

}  // namespace

int doctor(const std::string& file, const std::vector<std::string>& overrides) {
  std::vector<Finding> findings = {doctor::processors()};
  add(findings, binding());
  findings.push_back(doctor::optimizer());
  for (const DType type : {DType::kBf16, DType::kF16}) add(findings, products_of(type));
  add(findings, {doctor::memory(), doctor::huge_pages(), doctor::locked_memory()});
  add(findings, doctor::file_limits());
  add(findings, doctor::engines());
  add(findings, {doctor::device(), versions()});
  if (file.empty()) {
    findings.push_back(doctor::folder("this folder", ".", doctor::Holds::kFiles));
  } else {
    const config::Config config = config::load(file, overrides, environment());
    add(findings, threads_of(config));
    add(findings, folders_of(config));
  }
  fmt::print("{}", doctor::table(findings));
  return doctor::any_missing(findings) ? exit_code(Errc::kEnv) : 0;
}

}  // namespace sluice::app
