/// How fast weights come in and go out, beside what fio reads and writes on the same drive.
///
///   models FOLDER [ROUNDS [LAYERS]]
///
/// Makes a Llama of 0.84 billion parameters in FOLDER (1.7 GB of bf16), loads it and saves it again
/// as a run of no steps does: with the state in host memory (12 GiB of it) and on the drive. The
/// page cache holds none of the model before. Then one of 1.3 billion, or of LAYERS layers (61 are
/// 3.2 billion, for which FOLDER needs 50 GB), drawn from a seed, whose state begins on the drive.
/// fio takes turns with that: it reads a file that is there, and writes a new one of the model's
/// size, synced, as saving does; what it moves goes around the cache. Loading is the program of
/// first values; saving goes from the first op of the final program to the folder's name, all of it
/// synced. Drawing is the program of first values too, into a file that was reserved: a drive may
/// take that faster than a new one.
///
/// A share is the time that fio's rates leave for what has to move, by that which was taken: of
/// reading and writing whichever takes longer, or both at once as fio does both, and then the rest.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/train/drive.h"
#include "bench/train/harness.h"
#include "engine/app/job_of.h"
#include "engine/base/clock.h"
#include "engine/base/median.h"
#include "engine/checkpoint/header.h"
#include "engine/checkpoint/index.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/config/load.h"
#include "engine/executor/driver.h"
#include "engine/shape/init.h"
#include "engine/train/session.h"

namespace sluice {
namespace {

constexpr int kLayers = 14;       // of the model that comes from files
constexpr int kDrawnLayers = 24;  // of configs/llama_1b_cpu.yaml, unless others are asked for

constexpr Bytes kMostOfFio = 16_GiB;  // written by it: a larger file would only take room

std::string llama(int layers) {
  return fmt::format(
      "model.config={{model_type: llama, vocab_size: 32000, hidden_size: 2048, "
      "num_hidden_layers: {}, num_attention_heads: 16, num_key_value_heads: 16, "
      "intermediate_size: 5504, max_position_embeddings: 2048, tie_word_embeddings: false}}",
      layers);
}

constexpr const char* kRun = R"(
version: 1
data: {train: "docs/*.md", seq_len: 16}
train: {steps: 0, train_micro_batch_size_per_gpu: 1, gradient_accumulation_steps: 1}
precision: {compute: bf16}
zero_optimization: {offload_param: {device: cpu}}
tiers: {gpu: {limit: 1GiB, unified: false}, cpu: {limit: 14GiB}}
)";

train::Job job_of(const std::vector<std::string>& overrides, const std::string& folder) {
  train::Job job = app::job_of(config::from_text(kRun, overrides, app::environment()), folder);
  job.rates = plan::Rates{};  // nothing is trained
  return job;
}

void make_model(const std::string& folder) {
  if (std::filesystem::exists(folder)) return;
  const train::Job job = job_of({llama(kLayers)}, folder);
  const shape::Model model = shape::make_model(job.decoder);
  checkpoint::Writer writer(model, DType::kBf16, folder, 1_GiB);
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    const zero::Layout layout = zero::make_layout(model.segments[s]);
    for (const zero::Placed& p : layout.tensors) {
      std::vector<float> values(p.numel);
      shape::initial_values(1, model.segments[s].tensors[static_cast<std::size_t>(p.tensor)], 0,
                            values);
      writer.write(static_cast<int>(s), p.offset_elems, values);
    }
  }
  writer.finish();
}

double now_of(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// When the folder got its name, on the clock of spans.
double published_at(const std::string& folder) {
  struct stat info {};
  SLUICE_CHECK(::stat(folder.c_str(), &info) == 0, kIo, folder);
  const double changed =
      static_cast<double>(info.st_ctim.tv_sec) + 1e-9 * static_cast<double>(info.st_ctim.tv_nsec);
  return changed - now_of(CLOCK_REALTIME) + to_seconds(now_ns());
}

struct Took {
  double load_s = 0;  ///< of the program of first values
  double save_s = 0;
  double drained_s = 0;  ///< of save_s, to the end of the program; the rest is syncing
};

Took begin_and_end(const std::string& model, const std::string& folder, const std::string& home) {
  train::Job job = job_of(
      {model, "zero_optimization.offload_optimizer.device=" + home, "aio.verify=false"}, folder);
  Trace trace(std::size_t{1} << 16);
  job.hooks.trace = &trace;
  train::Session(job).run();
  Nanos begin[2] = {}, end[2] = {};
  for (const Span& span : trace.spans()) {
    const auto i = executor::placed(span.where).instance;
    begin[i] = begin[i] == Nanos{} ? span.begin : std::min(begin[i], span.begin);
    end[i] = std::max(end[i], span.end);
  }
  const double from = to_seconds(begin[1]);
  const Took took = {to_seconds(end[0] - begin[0]), published_at(folder + "/final") - from,
                     to_seconds(end[1]) - from};
  std::filesystem::remove_all(folder);
  return took;
}

/// In bytes per second; `mixed`: of as many read as written at once, all together.
struct Rates {
  double read, write, mixed;
};

Rates rates_of_fio(const std::string& folder, double model_bytes) {
  bench::FioJob job;
  job.seconds = 2;
  return {measured_by_fio(job, bench::Traffic::kRead, folder).read_rate,
          new_file_rate(job, std::min(static_cast<Bytes>(model_bytes), kMostOfFio), folder),
          measured_by_fio(job, bench::Traffic::kMixed, folder).rate()};
}

/// What one of them moves on the drive, and how much of fio's rates it got, by round.
struct Row {
  const char* name;
  double read_bytes, written_bytes;
  std::vector<double> seconds, shares;
  std::string bound;

  void add(double took_s, const Rates& fio) {
    const double read_s = read_bytes / fio.read, write_s = written_bytes / fio.write;
    const double common = std::min(read_bytes, written_bytes);
    const double rest_s = (read_bytes - common) / fio.read + (written_bytes - common) / fio.write;
    const double both_s = common > 0 ? 2 * common / fio.mixed + rest_s : 0;
    const auto [least_s, by] = std::max({std::pair(read_s, "reads"), std::pair(write_s, "writes"),
                                         std::pair(both_s, "both at once")});
    bound = by;
    seconds.push_back(took_s);
    shares.push_back(least_s / took_s);
  }
  void print(const char* of) const {
    const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
    fmt::print(
        "{:<4}, {:<18} {:6.2f} s for {:5.2f} GB read, {:5.2f} GB written; bound by {}, {:.2f} of "
        "fio's rate ({:.2f} to {:.2f})\n",
        name, of, median(seconds), read_bytes / 1e9, written_bytes / 1e9, bound, median(shares),
        *low, *high);
  }
};

/// A run of no steps: its model, where the state is, and what its beginning and its end move.
struct Case {
  const char* name;
  std::string model, home;
  Row begin, end;
};

Case case_of(const char* name, const std::string& model, const std::string& home) {
  const double elems =
      static_cast<double>(shape::make_model(job_of({model}, "none").decoder).parameters());
  const double weights = 2 * elems;
  const bool stored = home == "nvme";
  // Weights in cpu have the masters' upper halves, and are what is saved.
  const double state = stored ? 10 * elems : 0;
  const bool drawn = model.starts_with("model.config=");
  return {name,
          model,
          home,
          {drawn ? "draw" : "load", drawn ? 0 : weights, state, {}, {}, {}},
          {"save", 0, weights, {}, {}, {}}};
}

void compare(const std::string& folder, int rounds, int drawn_layers) {
  make_model(folder + "/model");
  const std::string stored = "model.path=" + folder + "/model";
  std::vector<Case> cases = {case_of("state cpu", stored, "cpu"),
                             case_of("state nvme", stored, "nvme"),
                             case_of("drawn, state nvme", llama(drawn_layers), "nvme")};
  std::vector<double> reads, writes;
  for (int round = 0; round < rounds; ++round) {
    for (Case& c : cases) {
      const Rates fio = rates_of_fio(folder, std::max(c.begin.written_bytes, c.end.written_bytes));
      reads.push_back(fio.read);
      writes.push_back(fio.write);
      leave_the_page_cache(folder + "/model");
      const Took took = begin_and_end(c.model, folder + "/run", c.home);
      c.begin.add(took.load_s, fio);
      c.end.add(took.save_s, fio);
      fmt::print(
          "# {}: {} {:.2f} s, save {:.2f} s, of which {:.2f} s to the last chunk; fio "
          "{:.2f}, {:.2f} and both at once {:.2f} GB/s\n",
          c.name, c.begin.name, took.load_s, took.save_s, took.drained_s, fio.read / 1e9,
          fio.write / 1e9, fio.mixed / 1e9);
    }
  }
  fmt::print("fio: {:.2f} GB/s read, {:.2f} GB/s written (medians of {})\n", median(reads) / 1e9,
             median(writes) / 1e9, reads.size());
  for (const Case& c : cases) {
    for (const Row* row : {&c.begin, &c.end}) row->print(c.name);
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::run_bench(
      argc, argv, "FOLDER [ROUNDS [LAYERS]]", [&](const auto& folder, const auto& more) {
        sluice::compare(std::filesystem::absolute(folder).string(),
                        more.empty() ? 5 : sluice::count_of(more[0]),
                        more.size() < 2 ? sluice::kDrawnLayers : sluice::count_of(more[1]));
      });
}
