/// Does memory keep its promise? Trains the model of a run file and compares the most that was ever
/// resident with what was committed.
///
///   resident RUN.yaml [KEY=VALUE ...]
///
/// L is what a process needs before it has a model: the resident set of one that has loaded the
/// libraries and run one op of every kind at the tiniest size. Wanted: resident at most <= gpu
/// pools
/// + cpu pools + 300 MiB + L, and L < 600 MiB.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/train/harness.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/base/error.h"
#include "engine/config/load.h"
#include "engine/memory/resident.h"
#include "engine/train/session.h"

namespace sluice {
namespace {

constexpr Bytes kSlack = 300_MiB;

constexpr const char* kTiniest = R"(
version: 1
model:
  config: {model_type: llama, vocab_size: 256, hidden_size: 16, num_hidden_layers: 2,
           num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 32,
           max_position_embeddings: 32, tie_word_embeddings: true}
data: {train: README.md, seq_len: 16}
train: {steps: 1, train_micro_batch_size_per_gpu: 1, gradient_accumulation_steps: 2}
tiers: {gpu: {limit: 64MiB, unified: false}, cpu: {limit: 64MiB}}
)";

/// Ops that fetch, read and write everything; then those of layers that stay and are kept.
void run_tiniest(const std::string& folder) {
  using Overrides = std::vector<std::string>;
  const auto device = [](const char* what, const char* home) {
    return fmt::format("zero_optimization.offload_{}.device={}", what, home);
  };
  for (const Overrides& homes : {Overrides{device("param", "nvme"), device("optimizer", "nvme"),
                                           device("activation", "nvme")},
                                 Overrides{device("param", "none"), device("gradient", "none")}}) {
    train::Job job = app::job_of(config::from_text(kTiniest, homes), folder);
    job.rates = plan::Rates{};  // a look at the machine takes memory that an op does not
    train::Session(job).run();
    std::filesystem::remove_all(folder + "/final");
  }
}

/// L, in a process of its own.
Bytes libraries(const std::string& folder) {
  int ends[2];
  SLUICE_CHECK(::pipe(ends) == 0, kEnv, "no pipe");
  const pid_t child = ::fork();
  SLUICE_CHECK(child >= 0, kEnv, "no second process");
  if (child == 0) {
    run_tiniest(folder);
    const Bytes peak = memory::peak_resident().value_or(0);
    ::_exit(::write(ends[1], &peak, sizeof peak) == sizeof peak ? 0 : 1);
  }
  Bytes peak = 0;
  ::close(ends[1]);
  const bool read = ::read(ends[0], &peak, sizeof peak) == sizeof peak;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  SLUICE_CHECK(read && status == 0, kEnv, "the process that measures L failed");
  return peak;
}

void bench(const std::string& file, const std::vector<std::string>& overrides) {
  const Scratch scratch("runs/resident");
  const Bytes l = libraries(scratch.path());
  const train::Job job =
      app::job_of(config::load(file, overrides, app::environment()), scratch.path());
  train::Session session(job);
  fmt::print("{}\n\n", session.report());
  session.run();
  const prefetch::BytesByTier& planned = session.plan().planned;
  const Bytes pools = planned[index(prefetch::Tier::kGpu)] + planned[index(prefetch::Tier::kCpu)];
  const Bytes peak = memory::peak_resident().value_or(0);
  fmt::print("\n{}\n", app::describe_machine(session.numerics().threads, job.cpu_adam.isa));
  fmt::print("L (libraries, one op of every kind): {}\n", format_bytes(l));
  fmt::print("committed pools: {} gpu, {} cpu\n",
             format_bytes(planned[index(prefetch::Tier::kGpu)]),
             format_bytes(planned[index(prefetch::Tier::kCpu)]));
  fmt::print("resident at most: {}; pools + 300 MiB + L: {}; {} to spare\n", format_bytes(peak),
             format_bytes(pools + kSlack + l),
             peak <= pools + kSlack + l ? format_bytes(pools + kSlack + l - peak)
                                        : "nothing, it is over:");
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::run_bench(argc, argv, "RUN.yaml [KEY=VALUE ...]", sluice::bench);
}
