/// What a run does when an op, the numbers or the disk of the final weights fail under it: it ends
/// with an error that says what, and leaves no final weights behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/support/extent.h"
#include "tests/support/file_size_limit.h"
#include "tests/train/faults.h"

namespace sluice::train {
namespace {

using schedule::OpId;
using testing::AllOf;
using testing::HasSubstr;

/// Which op of which kind fails, and how: thrown by start(), or by the ticket.
struct Trap {
  enum class How : std::uint8_t { kThrow, kTicket } how = How::kThrow;
  std::optional<OpId> kind;
  int occurrence = 0;
};

class TrappedHandler : public executor::Handler {
 public:
  using Counts = std::map<OpId, int>;
  TrappedHandler(executor::Handler& inner, const Trap& trap, Counts& started)
      : inner_(inner), trap_(trap), started_(started) {}

  Ticket start(const executor::OpContext& context) override {
    const OpId id = schedule::id_of(context.op);
    {
      const std::lock_guard lock(mutex_);
      const int number = started_[id]++;
      if (trap_.kind != id || trap_.occurrence != number) return inner_.start(context);
    }
    const Error error(Errc::kDevice, "the trap");
    if (trap_.how == Trap::How::kThrow) throw Error(error);
    TicketSource source;
    const Ticket ticket = source.ticket();
    source.fail(std::make_exception_ptr(error));
    return ticket;
  }
  void freed(const prefetch::Freed& slot) override { inner_.freed(slot); }

 private:
  executor::Handler& inner_;
  const Trap trap_;
  std::mutex mutex_;
  Counts& started_;
};

Ending run_into(Job job, const Trap& trap, TrappedHandler::Counts& started) {
  job.hooks.wrap_handler = [&](executor::Handler& inner, const memory::SlotMemory&) {
    return std::make_unique<TrappedHandler>(inner, trap, started);
  };
  fs::remove_all(job.folder);
  fs::create_directories(job.folder);
  return ending_of([&] { make_session(job).run(); });
}

/// From its first step on, from a checkpoint or from the beginning; all is saved after each step.
void make_delayed(Job& job, const std::string& resume) {
  job.optimizer.update = schedule::Update::kDelayed;
  job.optimizer.delayed_update_start = std::int64_t{0};
  job.train.clip_scope = ClipScope::kGlobal;
  job.checkpoint.every = std::int64_t{1};
  job.train.steps = 4;
  job.resume = resume;
}

/// The path of a checkpoint with a gradient whose update is still to come.
std::string save_with_gradient(Job job) {
  make_delayed(job, {});
  job.folder += "-saved";
  TrappedHandler::Counts ignored;
  EXPECT_EQ(run_into(job, {}, ignored).code, std::nullopt);
  return job.folder + "/checkpoints/step-2";
}

class OpFaults : public testing::TestWithParam<Execution> {};

TEST_P(OpFaults, AnyOpThatFailsEndsTheRunWithItsError) {
  const TempFolder folder;
  Job job = nvme_job(folder, GetParam());
  job.train.gradient_accumulation_steps = 2;  // so that there is something to accumulate
  job.train.train_batch_size = 4;
  job.data.valid = job.data.train;
  job.eval = {.every = 1, .batches = 1};
  job.checkpoint.every = std::int64_t{2};
  const test::Extent extent = test::extent();
  std::mt19937 random(11);
  TrappedHandler::Counts tried;
  struct Homes {
    schedule::ParamHome param;
    schedule::GradientHome gradient;
    schedule::OptimizerHome state;
    schedule::ActivationHome activation;
    schedule::Update update = schedule::Update::kEnd;
    DType compute = DType::kF32;
  };
  using schedule::ActivationHome, schedule::GradientHome, schedule::OptimizerHome,
      schedule::ParamHome;
  // Weights at home on the host are fetched, those on the device published and their layers kept,
  // and the head's logits; those on nvme read and written; so are activations there. With gradients
  // on the device its norms come back; with state there it is fetched, and what reads it or comes
  // of it comes back. Updates that arrive have records of their own; late ones take them from the
  // step before, or from a checkpoint.
  // In bf16 the weights have the upper halves of masters whose state is on nvme.
  const std::string saved = save_with_gradient(job);
  for (const auto& [param, gradient, state, activation, update, compute] :
       {Homes{ParamHome::kCpu, GradientHome::kCpu, OptimizerHome::kNvme, ActivationHome::kNone},
        Homes{ParamHome::kCpu, GradientHome::kCpu, OptimizerHome::kNvme, ActivationHome::kNone,
              schedule::Update::kEnd, DType::kBf16},
        Homes{ParamHome::kNone, GradientHome::kNone, OptimizerHome::kNvme, ActivationHome::kNone},
        Homes{ParamHome::kNvme, GradientHome::kCpu, OptimizerHome::kNone, ActivationHome::kNvme,
              schedule::Update::kArriving},
        Homes{ParamHome::kCpu, GradientHome::kCpu, OptimizerHome::kCpu, ActivationHome::kNone,
              schedule::Update::kDelayed}}) {
    job.compute = compute;
    job.homes.offload_param = param;
    job.homes.offload_gradient = gradient;
    job.homes.offload_optimizer = state;
    job.homes.offload_activation = activation;
    job.homes.recompute =
        param == ParamHome::kNone ? schedule::Recompute::kNone : schedule::Recompute::kEveryLayer;
    job.optimizer.update = update;
    if (update == schedule::Update::kArriving) {
      job.train.clip_scope = ClipScope::kSegment;
      job.train.on_nonfinite = OnNonFinite::kStop;
    }
    if (update == schedule::Update::kDelayed) make_delayed(job, saved);
    TrappedHandler::Counts ops;
    ASSERT_EQ(run_into(job, {}, ops).code, std::nullopt);
    for (const auto& [kind, count] : ops) {
      if (tried[kind]++ > 0) continue;
      for (const Trap::How how : {Trap::How::kThrow, Trap::How::kTicket}) {
        // Where all is slow, each kind fails in one way under each driver; or under one.
        const int way = static_cast<int>(how) + static_cast<int>(kind);
        if (extent != test::Extent::kAll && way % 2 != static_cast<int>(GetParam())) continue;
        if (extent == test::Extent::kLeast && how != Trap::How::kThrow) continue;
        const int occurrence = std::uniform_int_distribution(0, count - 1)(random);
        SCOPED_TRACE(testing::Message()
                     << schedule::kind_of(kind).name << " number " << occurrence << " of " << count
                     << (how == Trap::How::kThrow ? ", thrown" : ", by ticket"));
        TrappedHandler::Counts ignored;
        const Ending ending = run_into(job, {how, kind, occurrence}, ignored);
        EXPECT_EQ(ending.code, Errc::kDevice);
        EXPECT_EQ(ending.message, "the trap");
        expect_nothing_left(job);
      }
    }
  }
  EXPECT_EQ(tried.size(), static_cast<std::size_t>(OpId::kCount));
}

INSTANTIATE_TEST_SUITE_P(Drivers, OpFaults,
                         testing::Values(Execution::kSerial, Execution::kOverlapped),
                         [](const auto& info) {
                           return info.param == Execution::kSerial ? "Serial" : "Overlapped";
                         });

/// From its first update on, this run has only infinite losses.
Job exploding_job(const TempFolder& folder) {
  Job job = tiny_job(folder, tiny_llama());
  job.optimizer.lr = 1e30;
  return job;
}

TEST(NonFinite, StopEndsTheRunAtTheFirstBadStep) {
  const TempFolder folder;
  Job job = exploding_job(folder);
  job.train.on_nonfinite = OnNonFinite::kStop;
  const Ending ending = ending_of([&] { run(job); });
  EXPECT_EQ(ending.code, Errc::kNonFinite);
  EXPECT_THAT(ending.message, AllOf(HasSubstr("step 2"), HasSubstr("train.on_nonfinite is stop"),
                                    HasSubstr("optimizer.lr")));
  expect_nothing_left(job);
}

TEST(NonFinite, TooManySkipsInARowEndTheRun) {
  const TempFolder folder;
  Job job = exploding_job(folder);
  job.train.max_skips = 2;
  const Ending ending = ending_of([&] { run(job); });
  EXPECT_EQ(ending.code, Errc::kNonFinite);
  EXPECT_THAT(ending.message,
              AllOf(HasSubstr("2 skipped steps in a row"), HasSubstr("train.max_skips is 2")));
  expect_nothing_left(job);
}

TEST(NonFinite, SkipsBelowTheLimitLetTheRunFinish) {
  const TempFolder folder;
  Job job = exploding_job(folder);
  job.train.max_skips = 10;
  const Fingerprint print = run(job);
  EXPECT_EQ(print.skipped, (std::vector{false, true, true, true, true}));
  EXPECT_TRUE(fs::exists(fs::path(job.folder) / "final" / "model.safetensors"));
}

/// Only the files of final/ are written after the last step.
TEST(FinalWeights, AFileThatCannotGrowLeavesNoFinalFolder) {
  const TempFolder folder;
  for (const rlim_t room : {rlim_t{0}, rlim_t{100 << 10}}) {
    std::optional<test::FileSizeLimit> limit;
    Job job = nvme_job(folder, Execution::kOverlapped);
    job.on_step = [&](const data::StepRecord& record) {
      if (record.step == record.steps) limit.emplace(room);
    };
    fs::create_directories(job.folder);
    const Ending ending = ending_of([&] { make_session(job).run(); });
    ASSERT_TRUE(limit);
    limit.reset();
    EXPECT_EQ(ending.code, Errc::kIo);
    EXPECT_THAT(ending.message, AllOf(HasSubstr("model.safetensors"), HasSubstr("File too large")));
    expect_nothing_left(job);
  }
}

}  // namespace
}  // namespace sluice::train
