#include "engine/bench/memory_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "cpu_adam/isa.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/base/log.h"
#include "engine/base/stop_signal.h"
#include "engine/bench/adam_cases.h"
#include "engine/bench/context.h"
#include "engine/bench/copy_cases.h"
#include "engine/bench/files.h"
#include "engine/bench/json.h"
#include "engine/bench/memory_table.h"
#include "engine/bench/progress.h"
#include "engine/bench/table.h"
#include "engine/bench/verdict.h"

namespace sluice::bench {
namespace {

constexpr std::uint64_t kMostParameters = 1'000'000'000;
constexpr Bytes kMostCopied = 512_MiB;
constexpr Bytes kBuffers = 4;  // of a copy

constexpr MemoryEffort kUsualEffort{.rounds = 5, .seconds = 0.2};
constexpr MemoryEffort kQuickEffort{.rounds = 3, .seconds = 0.1};

/// What may be asked for at all, and what is used where nothing is: half of what is free.
struct Room {
  HostMemory memory = host_memory();
  Bytes each;  // of what is counted

  std::uint64_t usual(std::uint64_t most) const {
    return std::min(most, memory.available / 2 / each);
  }
  void require(std::uint64_t n, const std::string& asked) const {
    SLUICE_CHECK(n <= memory.available / each, kBudget,
                 fmt::format("{} takes {}, {} has {} free; ask for less", asked,
                             format_bytes(n * each), memory.whose, format_bytes(memory.available)));
  }
};

std::uint64_t parameters_of(const std::string& text, DType type) {
  const Room room{.each = memory_per_parameter(type)};
  if (text.empty()) return std::max(kGrainElems, room.usual(kMostParameters));
  const std::uint64_t n = parse_parameters(text);
  SLUICE_CHECK(n >= kGrainElems, kConfig,
               fmt::format("--parameters {}: at least {}", text, kGrainElems));
  room.require(n, "--parameters " + text);
  return n;
}

Bytes copied_of(const std::string& text) {
  const Room room{.each = kBuffers};
  if (text.empty()) return std::max(1_MiB, room.usual(kMostCopied));
  const Bytes n = parse_bytes(text);
  SLUICE_CHECK(n >= 1_MiB, kConfig, fmt::format("--size {}: at least 1MiB", text));
  room.require(n, "--size " + text);
  return n;
}

DType type_of(const std::string& text) {
  for (const DType type : {DType::kBf16, DType::kF32}) {
    if (text.empty() || text == name_of(type)) return type;
  }
  throw Error(Errc::kConfig, fmt::format("--dtype {}: bf16 or fp32", text));
}

std::vector<unsigned> numbers_of_threads() {
  const unsigned cores = core_count();
  std::vector<unsigned> numbers = {1};
  if (cores >= 4) numbers.push_back(cores / 2);
  if (cores > 1) numbers.push_back(cores);
  return numbers;
}

int run(const char* verb, const std::vector<MemoryCase>& cases, const MemoryArguments& arguments) {
  const MemoryEffort& effort = arguments.quick ? kQuickEffort : kUsualEffort;
  const MachineContext machine = machine_context();
  Progress progress(arguments.quiet ? Talk::kNone : usual_talk());
  if (!arguments.quiet) log::info("machine     " + text_of(machine));
  watch_stop_signals("stopping after what is being measured");
  const double visits = static_cast<double>(cases.size()) * effort.rounds;
  progress.begin(verb, 1.5 * visits * effort.seconds);
  const std::vector<MemoryRun> runs =
      measure(cases, effort, std::random_device{}(), progress, stop_signal());
  progress.clear();
  const std::vector<MemorySummary> summaries = summarize(cases, runs);
  std::string text = table(summaries) + verdict(summaries);
  text.pop_back();  // the last line's end
  log::info(text);
  if (!arguments.json.empty()) {
    write_result("--json", arguments.json, to_json(verb, machine, runs, summaries));
  }
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

}  // namespace

int adam(const MemoryArguments& arguments) {
  require_writable("--json", arguments.json);
  AdamQuestion question;
  question.type = type_of(arguments.dtype);
  question.most = parameters_of(arguments.most, question.type);
  question.isas = cpu_adam::available_isas();
  if (arguments.quick) question.isas.resize(1);
  question.threads = numbers_of_threads();
  return run("adam", adam_cases(question), arguments);
}

int copy(const MemoryArguments& arguments) {
  require_writable("--json", arguments.json);
  return run("copy", copy_cases(copied_of(arguments.most)), arguments);
}

}  // namespace sluice::bench
