#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/executor/driver.h"
#include "engine/executor/records.h"

namespace sluice::executor {
namespace {

using prefetch::OpRef;

/// One op at a time, in program order, on the caller's thread. Slots come from the same Scoreboard,
/// so they are handed out by the same rules.
class Serial final : public Driver {
 public:
  Serial(const Resources& resources, Handler& handler)
      : handler_(handler),
        trace_(resources.trace),
        board_(resources.residents, resources.pools, resources.lanes, resources.derive),
        reasons_(resources.lanes.size(), resources.pools.size()),
        accounts_(resources.lanes.size(), LaneAccount(now_ns(), reasons_.size())) {}

  void append(std::shared_ptr<const prefetch::Program> program, std::uint64_t tag) override {
    if (stopped_) {
      left_ = true;
      return;
    }
    const auto ops = static_cast<std::uint32_t>(program->ops().size());
    board_.stamp(now_ns());
    const std::uint32_t instance = board_.append(std::move(program));
    records_.append(tag);
    for (std::uint32_t i = 0; i < ops && !stopped_; ++i) run({instance, i});
    if (board_.finished(instance)) {
      const Nanos now = now_ns();
      Finished finished{instance, 0, now, {}, peak_slots(board_)};
      for (LaneAccount& lane : accounts_) finished.lanes.push_back(lane.look(now));
      records_.finish(std::move(finished));
    } else {
      left_ = true;
    }
  }

  std::vector<Finished> wait(std::size_t) override {
    if (error_) std::rethrow_exception(error_);
    SLUICE_CHECK(!left_, kLogic, "the run was stopped before its last op");
    return records_.take();
  }

  void stop() noexcept override { stopped_ = true; }

  std::vector<Running> running() const override {
    const std::lock_guard lock(mutex_);
    return running_;
  }

 private:
  void run(OpRef ref) {
    const prefetch::LaneId lane = board_.op(ref).lane;
    const bool stream = board_.lanes()[lane].issue == prefetch::Issue::kFifo;
    try {
      SLUICE_CHECK(board_.next(lane) == ref, kLogic,
                   fmt::format("{}: '{}' cannot start although all before it is done; was the "
                               "program checked?",
                               board_.program(ref.instance).name(), describe(board_.op(ref))));
      const Nanos begin = now_ns();
      accounts_[lane].begin(begin, board_.ready_since(ref), reasons_.of(board_.cause(ref)));
      const std::exception_ptr error = in_op(start(ref, begin), board_, ref);
      if (stream) board_.issued(ref);
      const Nanos end = now_ns();
      accounts_[lane].end(end);
      add_span(trace_, board_, ref, begin, end);
      board_.stamp(end);
      const auto freed = board_.completed(ref);
      for (const prefetch::Freed& slot : freed) handler_.freed(slot);
      if (error) std::rethrow_exception(error);
    } catch (...) {
      error_ = std::current_exception();
      stopped_ = true;
    }
  }

  std::exception_ptr start(OpRef ref, Nanos begin) {
    const NamedSlots slots = named_slots(board_, ref);
    const prefetch::Program& program = board_.program(ref.instance);
    const std::uint64_t tag = records_.tag(ref.instance);
    now_runs({{ref, &program, tag, slots, board_.lanes()[board_.op(ref).lane].name, begin}});
    std::exception_ptr error;
    try {
      error = handler_.start({ref, program, program.ops()[ref.index], tag, slots, {}}).wait_error();
    } catch (...) {
      error = std::current_exception();
    }
    now_runs({});
    return error;
  }

  void now_runs(std::vector<Running> running) {
    const std::lock_guard lock(mutex_);
    running_ = std::move(running);
  }

  Handler& handler_;
  Trace* const trace_;
  prefetch::Scoreboard board_;
  const Reasons reasons_;
  std::vector<LaneAccount> accounts_;
  Records records_;
  std::exception_ptr error_;
  std::atomic<bool> stopped_{false};
  bool left_ = false;  // stopped with ops that had not run
  mutable std::mutex mutex_;
  std::vector<Running> running_;  // guarded; one op, or none
};

}  // namespace

std::unique_ptr<Driver> serial(const Resources& resources, Handler& handler) {
  return std::make_unique<Serial>(resources, handler);
}

}  // namespace sluice::executor
