/// Steps that are skipped here and there because their gradients are not finite: nothing of them
/// stays, and what is counted goes on as if they had not been.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "gpu/local.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

using executor::OpContext;
using schedule::buffer_of;
using schedule::Operand;
using schedule::OpId;
using testing::HasSubstr;

constexpr std::int64_t kSteps = 10;
const std::set<std::int64_t> kSpoiled = {3, 4, 7};  // counted from 0

using Floats = std::vector<float>;

/// One chunk's update in one step, as the op saw it.
struct Update {
  Floats gradient;
  Floats before, after;  // master, m, v
  Record record;
};

struct Sightings {
  std::map<std::pair<std::int64_t, int>, Update> updates;  // by step and segment
  std::map<std::pair<std::int64_t, int>, Floats> weights;  // that a layer's forward read, likewise
};

/// Copies what the ops of the update and the layers' forwards have before them and leave behind.
class Onlooker : public executor::Handler {
 public:
  Onlooker(executor::Handler& inner, const memory::SlotMemory& memory, Sightings& seen)
      : inner_(inner), memory_(memory), seen_(seen) {}

  Ticket start(const OpContext& context) override {
    const Tag tag = Tag::unpack(context.tag);
    if (tag.kind != Tag::Kind::kStep) return inner_.start(context);
    const OpId id = schedule::id_of(context.op);
    const std::pair at{tag.step, context.op.where.segment};
    if (id == OpId::kLayerForward) {
      Floats weights = floats(context, buffer_of(context.op, Operand::kWeights));
      const std::lock_guard lock(mutex_);
      seen_.weights[at] = std::move(weights);
    }
    if (id != OpId::kAdam) return inner_.start(context);
    Update update;
    std::memcpy(&update.record, address(context, context.op.predicate->record, memory_),
                sizeof(Record));
    update.before = floats(context, buffer_of(context.op, Operand::kState));
    update.gradient = floats(context, buffer_of(context.op, Operand::kGradient));
    Ticket ticket = inner_.start(context);
    ticket.wait();
    update.after = floats(context, buffer_of(context.op, Operand::kState));
    const std::lock_guard lock(mutex_);
    seen_.updates[at] = std::move(update);
    return ticket;
  }
  void freed(const prefetch::Freed& slot) override { inner_.freed(slot); }

 private:
  Floats floats(const OpContext& context, prefetch::BufferId id) const {
    const auto* first = reinterpret_cast<const float*>(gpu::local(address(context, id, memory_)));
    return {first, first + context.program.info(id).bytes / sizeof(float)};
  }

  executor::Handler& inner_;
  const memory::SlotMemory& memory_;
  std::mutex mutex_;
  Sightings& seen_;
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// fp32, one chunk per segment, no weight decay, the learning rate on a straight line to a tenth.
Job skipping_job(const TempFolder& folder) {
  Job job = tiny_job(folder, tiny_llama());
  job.train.steps = kSteps;
  job.homes.sub_group_size = std::nullopt;
  job.optimizer.weight_decay = 0;
  job.scheduler = {data::SchedulerType::kLinear, std::int64_t{0}, 0.1};
  return job;
}

double textbook_lr(std::int64_t step) {
  return 1e-2 * (1 - 0.9 * static_cast<double>(step) / kSteps);
}

/// Adam as the paper writes it, in double, from the same floats: update number t at this rate.
///
/// The bounds, in roundings of u = 2^-24. The program rounds its constants (clip, 1 - beta, the
/// corrections, lr) and each operation once, relative to the sizes of the terms that it adds:
///   m       1 - beta1, the clipped gradient, the product beta1 m, the sum: at most 3 on a term
///   v       1 - beta2, the clipped gradient twice, a product, the sum: 5
///   step    m's 3; half of v's 5; a root, its factor (2), the sum, the division; lr, its
///   correction,
///           their quotient; the product: 15
///   master  the step's, and the subtraction's 1
/// One more on each is for products of roundings; below the normal numbers a rounding is absolute.
void expect_textbook(const Update& update, std::int64_t t, double lr,
                     const OptimizerOptions& options) {
  constexpr double kUnit = 0x1p-24;
  constexpr double kLeast = 0x1p-140;
  const double beta1 = static_cast<float>(options.betas[0]);
  const double beta2 = static_cast<float>(options.betas[1]);
  const double correction1 = 1 - std::pow(beta1, t);
  const double correction2 = 1 - std::pow(beta2, t);
  const std::size_t n = update.gradient.size();
  ASSERT_EQ(update.before.size(), 3 * n);
  std::size_t wrong = 0, moved = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double g = double{update.gradient[i]} * double{update.record.clip};
    const double old_m = beta1 * double{update.before[n + i]};
    const double new_m = (1 - beta1) * g;
    const double m = old_m + new_m;
    const double m_size = std::abs(old_m) + std::abs(new_m);
    const double v = beta2 * double{update.before[2 * n + i]} + (1 - beta2) * g * g;
    const double factor = lr / correction1 / (std::sqrt(v / correction2) + options.eps);
    const double master = double{update.before[i]} - factor * m;
    const auto off = [&](std::size_t at, double want, double bound) {
      return std::abs(double{update.after[at]} - want) > kUnit * bound + kLeast;
    };
    if (off(n + i, m, 4 * m_size) || off(2 * n + i, v, 6 * v) ||
        off(i, master, 2 * std::abs(master) + 16 * factor * m_size)) {
      ++wrong;
    }
    if (update.after[i] != update.before[i]) ++moved;
  }
  EXPECT_EQ(wrong, 0U) << "of " << n << " elements, as update " << t;
  EXPECT_GT(moved, 0U);
}

struct Placement {
  const char* name;
  schedule::ParamHome param;
  schedule::GradientHome gradient;
  schedule::OptimizerHome state;
};

class ScatteredSkips : public testing::TestWithParam<Placement> {
 protected:
  Job job(Sightings& seen) const {
    Job made = skipping_job(folder_);
    made.homes.offload_param = GetParam().param;
    made.homes.offload_gradient = GetParam().gradient;
    made.homes.offload_optimizer = GetParam().state;
    made.homes.recompute = schedule::Recompute::kEveryLayer;
    made.hooks.wrap_handler = [&](executor::Handler& inner, const memory::SlotMemory& memory) {
      return std::make_unique<Onlooker>(inner, memory, seen);
    };
    return made;
  }
  TempFolder folder_;
};

TEST_P(ScatteredSkips, LeaveNoTraceInStateWeightsOrTheCountOfUpdates) {
  Sightings seen;
  const Job job = this->job(seen);
  const Observed run = observe(job, {.spoiled_steps = kSpoiled});
  ASSERT_EQ(run.records.size(), static_cast<std::size_t>(kSteps));
  const int segments = static_cast<int>(run.plan.setup.layouts.size());
  ASSERT_EQ(run.plan.setup.chunk_count(), static_cast<std::uint64_t>(segments));
  ASSERT_EQ(seen.updates.size(), static_cast<std::size_t>(kSteps * segments));
  ASSERT_EQ(seen.weights.size(), static_cast<std::size_t>(kSteps * job.decoder.layers));

  std::int64_t applied = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const bool skipped = kSpoiled.contains(step);
    const auto& record = run.records[static_cast<std::size_t>(step)];
    EXPECT_EQ(record.skipped, skipped);
    EXPECT_NEAR(record.lr, textbook_lr(step), 1e-14);  // a few roundings of a double near 0.01
    if (!skipped) ++applied;
    for (int segment = 0; segment < segments; ++segment) {
      SCOPED_TRACE(testing::Message() << "step " << step << " segment " << segment);
      const Update& update = seen.updates.at({step, segment});
      if (skipped) {
        EXPECT_TRUE(same_bits(update.before, update.after));
      } else {
        expect_textbook(update, applied, textbook_lr(step), job.optimizer);
      }
      if (step > 0) {
        EXPECT_TRUE(same_bits(update.before, seen.updates.at({step - 1, segment}).after));
      }
      const auto weights = seen.weights.find({step, segment});
      if (weights == seen.weights.end()) continue;
      const std::span master = std::span(update.before).first(update.before.size() / 3);
      EXPECT_TRUE(same_bits(weights->second, master)) << "the layer computed with other weights";
    }
  }
  EXPECT_EQ(applied, kSteps - static_cast<std::int64_t>(kSpoiled.size()));
}

TEST_P(ScatteredSkips, CountTowardsTheLimitInARowOnly) {
  Sightings ignored;
  Job enough = job(ignored);
  enough.train.max_skips = 3;  // there are three, two of them in a row
  EXPECT_EQ(run(enough, {.spoiled_steps = kSpoiled}).losses.size(),
            static_cast<std::size_t>(kSteps));
  Job too_few = job(ignored);
  too_few.train.max_skips = 2;
  try {
    run(too_few, {.spoiled_steps = kSpoiled});
    ADD_FAILURE() << "the run went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::kNonFinite);
    EXPECT_THAT(e.what(), HasSubstr("step 5"));
    EXPECT_THAT(e.what(), HasSubstr("2 skipped steps in a row"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Placements, ScatteredSkips,
    testing::Values(Placement{"Resident", schedule::ParamHome::kNone, schedule::GradientHome::kNone,
                              schedule::OptimizerHome::kCpu},
                    Placement{"HostWeights", schedule::ParamHome::kCpu,
                              schedule::GradientHome::kCpu, schedule::OptimizerHome::kNvme},
                    Placement{"DriveWeights", schedule::ParamHome::kNvme,
                              schedule::GradientHome::kNone, schedule::OptimizerHome::kNvme}),
    [](const auto& placement) { return placement.param.name; });

}  // namespace
}  // namespace sluice::train
