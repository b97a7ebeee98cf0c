#include "engine/app/environment.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cpu_adam/isa.h"
#include "engine/base/cores.h"
#include "engine/base/log.h"
#include "engine/base/machine.h"
#include "engine/doctor/machine.h"
#include "engine/tensor/instructions.h"
#include "engine/tensor/process.h"
#include "gpu/device.h"

namespace sluice::app {
namespace {

void warn_of(const std::vector<doctor::Finding>& findings) {
  for (const doctor::Finding& f : findings) {
    if (f.verdict != doctor::Verdict::kOk) {
      log::warning(fmt::format("{}: {}; {}", f.subject, f.found, f.fix));
    }
  }
}

}  // namespace

config::Environment environment() {
  config::Environment variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

void prepare_process() {
  // What a step takes from malloc is small and comes again in the next one: keep it. Large pieces
  // are taken at start only; a fixed threshold sends them back to the system when they are freed.
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  ::mallopt(M_ARENA_MAX, 4);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);  // `| head` ends the lines, not the run
}

std::vector<doctor::Finding> products_of(DType type) {
  if (gpu::device().backend != gpu::Backend::kHost) return {};
  const auto lack = tensor::lacks_products(type, tensor::code_paths()).value_or(tensor::Lack{});
  return {doctor::products(type, lack.reason, lack.remedy)};
}

std::vector<doctor::Finding> threads_of(const config::Config& config) {
  std::vector<doctor::Finding> findings;
  if (config.compute.threads && gpu::device().backend == gpu::Backend::kHost) {
    findings.push_back(doctor::threads("compute.threads", *config.compute.threads));
  }
  if (config.cpu_adam.threads) {
    findings.push_back(doctor::threads("cpu_adam.threads", *config.cpu_adam.threads));
  }
  return findings;
}

void warn_of_threads(const config::Config& config) {
  warn_of(threads_of(config));
}

void warn_of_processors(DType compute) {
  std::vector<doctor::Finding> findings = {doctor::processors()};
  std::ranges::copy(products_of(compute), std::back_inserter(findings));
  warn_of(findings);
}

checkpoint::Settings processor_settings() {
  const gpu::Device device = gpu::device();
  const tensor::CodePaths paths = tensor::code_paths();
  if (!device.unified) return {{"processor", device.name}, {"LibTorch", paths.libtorch}};
  return {{"processor", cpu_model().value_or("unknown")},
          {"processor, instructions", paths.instructions},
          {"LibTorch", paths.libtorch},
          {"LibTorch, ATen", paths.aten},
          {"LibTorch, MKL", paths.mkl},
          {"LibTorch, oneDNN", paths.onednn}};
}

std::string describe_machine(int compute_threads, cpu_adam::Isa isa) {
  utsname kernel{};
  ::uname(&kernel);
  const gpu::Device device = gpu::device();
  nlohmann::ordered_json json;
  json["sluice"] = SLUICE_VERSION;
  json["cpu"] = cpu_model().value_or("unknown");
  const Cores processors = cores();
  json["cores"] = processors.usable;
  if (processors.quota) json["cpu_quota"] = processors.quota->cores;
  json["memory_bytes"] =
      static_cast<Bytes>(::sysconf(_SC_PHYS_PAGES)) * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  json["kernel"] = std::string(kernel.sysname) + " " + kernel.release;
  json["device"] = {
      {"name", device.name}, {"memory_bytes", device.memory}, {"unified", device.unified}};
  const tensor::CodePaths paths = tensor::code_paths();
  json["instructions"] = paths.instructions;
  json["code_paths"] = {{"aten", paths.aten},
                        {"mkl", paths.mkl},
                        {"onednn", paths.onednn},
                        {"cpu_adam", cpu_adam::name_of(cpu_adam::choose_isa(isa))}};
  json["compute_threads"] = compute_threads;
  return json.dump(2) + "\n";
}

}  // namespace sluice::app
