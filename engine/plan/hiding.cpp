#include "engine/plan/hiding.h"

#include <algorithm>
#include <set>
#include <vector>

namespace sluice::plan {
namespace {

using schedule::LaneKind;

/// Seconds of one step: `once`, and `each` for every micro-batch.
struct Work {
  double once = 0, each = 0;

  void add(const prefetch::Op& op, double seconds, double micro_batches) {
    if (op.where.micro_batch < 0) {
      once += seconds;
    } else {
      each += seconds / micro_batches;
    }
  }
  double seconds(double micro_batches) const { return once + each * micro_batches; }
};

/// What the drives take of one resource.
struct Taken {
  Work work;
  std::set<prefetch::LaneId> lanes;

  /// Of reads and writes at once, or in turn where they are in each other's way.
  Work seconds(const prefetch::Resource& resource) const {
    const double gives = lanes.size() > 1 ? std::max(1.0, resource.shared) : 1;
    return {work.once / gives, work.each / gives};
  }
};

/// Micro-batches from which on `work` is no longer than `computing`; nullopt: it is longer of many.
std::optional<double> hidden_from(const Work& work, const Work& computing) {
  if (work.once <= computing.once && work.each <= computing.each) return 0;
  if (work.each >= computing.each) return std::nullopt;
  return (work.once - computing.once) / (computing.each - work.each);
}

bool is_of_drives(const prefetch::Op& op) {
  return op.lane == schedule::lane_of(LaneKind::kNvmeRead) ||
         op.lane == schedule::lane_of(LaneKind::kNvmeWrite);
}

}  // namespace

Hiding hide_drives(const prefetch::Program& step, const schedule::Setup& setup,
                   const prefetch::CostModel& cost) {
  const auto micro_batches = static_cast<double>(setup.micro_batches);
  Work computing;
  std::vector<Taken> drives(cost.resources.size());
  for (const prefetch::Op& op : step.ops()) {
    const double seconds = cost.seconds(op);
    if (op.lane == schedule::lane_of(LaneKind::kCompute)) {
      computing.add(op, seconds, micro_batches);
    } else if (is_of_drives(op)) {
      for (const prefetch::Demand& demand : cost.of(op).demands) {
        drives[demand.resource].work.add(op, seconds * demand.share, micro_batches);
        drives[demand.resource].lanes.insert(op.lane);
      }
    }
  }
  Hiding hiding{0, 0};
  for (std::size_t r = 0; r < drives.size(); ++r) {
    const Work work = drives[r].seconds(cost.resources[r]);
    hiding.drives_s = std::max(hiding.drives_s, work.seconds(micro_batches));
    const auto from = hidden_from(work, computing);
    if (!from || !hiding.tokens) {
      hiding.tokens = std::nullopt;
    } else {
      hiding.tokens =
          std::max(*hiding.tokens, *from * static_cast<double>(setup.micro_batch_tokens()));
    }
  }
  return hiding;
}

}  // namespace sluice::plan
