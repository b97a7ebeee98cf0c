/// A long run holds at its end what it held near its beginning: nothing is kept per step.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <string>

#include "tests/train/tiny_run.h"

namespace {

/// Bytes that `new` has handed out and not got back, in the whole process.
std::atomic<std::int64_t> live_bytes{0};

void* counted_new(std::size_t bytes, std::size_t alignment) {
  void* memory =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
          : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += static_cast<std::int64_t>(::malloc_usable_size(memory));
  return memory;
}

void counted_delete(void* memory) noexcept {
  if (memory == nullptr) return;
  live_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// The array and nothrow forms call these.
void* operator new(std::size_t bytes) {
  return counted_new(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_new(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  counted_delete(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  counted_delete(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  counted_delete(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  counted_delete(memory);
}

namespace sluice::train {
namespace {

constexpr std::int64_t kSteps = 2000;
constexpr std::int64_t kSettled = 200;
/// In one of so many steps little is in flight when it ends, however busy the machine is.
constexpr std::int64_t kCalm = 100;

/// A number of a file of /proc: what follows `key`.
std::int64_t of_process(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  }
  ADD_FAILURE() << path << " has no " << key;
  return 0;
}

/// Resident memory in bytes without that of files, whose pages come and go.
std::int64_t resident_bytes() {
  return of_process("/proc/self/smaps_rollup", "Anonymous:") * 1024;
}

Job job_of(const TempFolder& folder, std::int64_t steps) {
  shape::Decoder decoder = tiny_llama();
  decoder.vocab = 13;
  decoder.hidden = 8;
  decoder.layers = 1;
  decoder.heads = decoder.kv_heads = 1;
  decoder.head_dim = 8;
  decoder.intermediate = 8;
  Job job = tiny_job(folder, decoder);
  job.data.seq_len = 4;
  job.train.steps = steps;
  job.train.train_micro_batch_size_per_gpu = job.train.train_batch_size = 1;
  job.homes.offload_optimizer = schedule::OptimizerHome::kNvme;
  return job;
}

/// What a run of so many steps holds.
struct Held {
  /// The least live bytes at the end of one of its last kCalm steps.
  std::int64_t at_end = std::numeric_limits<std::int64_t>::max();
  std::int64_t least = 0;          ///< live bytes at the end of a step after kSettled,
  std::int64_t most = 0;           ///< with whatever was in flight then
  std::int64_t settled = 0;        ///< resident after kSettled steps
  std::int64_t most_resident = 0;  ///< after that
  std::int64_t threads = 0;
};

Held held_by(std::int64_t steps) {
  const TempFolder folder;
  Job job = job_of(folder, steps);
  Held held;
  job.on_step = [&](const data::StepRecord& record) {
    const std::int64_t live = live_bytes;
    if (record.step > steps - kCalm) held.at_end = std::min(held.at_end, live);
    if (record.step < kSettled) return;
    if (record.step == kSettled) {
      held.least = live;
      held.settled = resident_bytes();
      held.threads = of_process("/proc/self/status", "Threads:");
    }
    held.least = std::min(held.least, live);
    held.most = std::max(held.most, live);
    if (record.step % 50 == 0) held.most_resident = std::max(held.most_resident, resident_bytes());
  };
  std::filesystem::create_directories(job.folder);
  Session session = make_session(job);
  EXPECT_TRUE(session.plan().setup.streams_params());
  session.run();
  return held;
}

TEST(Endurance, TwoThousandStepsHoldWhatTwoHundredDo) {
  held_by(kSettled);  // what LibTorch makes once per process is there afterwards
  const Held few = held_by(kSettled);
  const Held many = held_by(kSteps);
  // Anything kept per step takes 8 bytes or more: an OpRef among a leaf's readers, a number.
  EXPECT_LT(many.at_end - few.at_end, 8 * (kSteps - kSettled) / 2);
  // malloc keeps freed pages. So the most that was in flight may once have lain in the arena of
  // each thread, and each may have used one page more of its stack.
  const std::int64_t per_thread = many.most - many.least + 4096;
  EXPECT_LE(many.most_resident - many.settled, many.threads * per_thread);
}

}  // namespace
}  // namespace sluice::train
