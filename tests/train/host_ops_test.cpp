/// Work of the host that goes on at once with itself.
#include "engine/train/host_ops.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/data/sampler.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

using schedule::Operand;
using schedule::OpId;

/// Two threads that meet in one piece of work; whoever is alone there waits for the other.
class Meeting {
 public:
  void attend() {
    std::unique_lock lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    came_.notify_all();
    came_.wait_for(lock, kLongest, [this] { return held(); });
  }
  bool held() const { return threads_.size() > 1; }

 private:
  static constexpr std::chrono::seconds kLongest{10};
  std::mutex mutex_;
  std::condition_variable came_;
  std::set<std::thread::id> threads_;
};

/// Has values that are nothing but the threads that make them.
class Met : public FirstValues {
 public:
  Met(Meeting& filled, Meeting& checked) : filled_(filled), checked_(checked) {}

  Ticket read(int, const zero::Chunk&, std::span<float>) const override { return {}; }
  void fill(int, const zero::Chunk& chunk, std::span<float>,
            const checkpoint::Each& each) const override {
    each(chunk.elems, [this](std::size_t, std::size_t) { filled_.attend(); });
  }
  void check_gradient(int, const zero::Chunk& chunk, std::span<const std::byte>,
                      const checkpoint::Each& each) const override {
    each(chunk.elems, [this](std::size_t, std::size_t) { checked_.attend(); });
  }

 private:
  Meeting &filled_, &checked_;
};

OpBytes op_of(OpId id, const std::vector<std::pair<Operand, std::span<float>>>& operands) {
  OpBytes op;
  op.id = id;
  op.where.segment = op.where.chunk = 0;
  for (const auto& [name, values] : operands) op.bind(name, std::as_writable_bytes(values));
  return op;
}

TEST(HostOps, FirstValuesAreMadeAndComparedByAllThreadsOfTheOptimizer) {
  constexpr std::size_t kElems = 64 * kGrainElems;
  schedule::Setup setup;
  setup.chunks = {{{0, kElems}}};
  const TempFolder folder;
  write_tokens(folder / "tokens.bin", 100, 50);
  data::DataOptions stream;
  stream.seq_len = 9;
  const data::Dataset tokens(stream, {folder / "tokens.bin"}, 50);
  const data::Sampler sampler(tokens.samples(), 1, data::Order::kSequential);
  const Batches batches(tokens, nullptr, sampler, 1, 1, 0);
  const cpu_adam::Optimizer optimizer({.threads = 2});
  Meeting filled, checked;
  HostOps host(setup, {}, std::make_unique<Met>(filled, checked), batches, optimizer);
  std::vector<float> state(3 * kElems), fresh(kElems), gradient(kElems);
  host.run(op_of(OpId::kInitState, {{Operand::kState, state}, {Operand::kFresh, fresh}}));
  EXPECT_TRUE(filled.held());
  host.run(op_of(OpId::kInitGradient, {{Operand::kGradient, gradient}}));
  EXPECT_TRUE(checked.held());
}

}  // namespace
}  // namespace sluice::train
