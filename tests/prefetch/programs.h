/// Short hand for small programs in the unit tests.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "prefetch/program.h"

namespace sluice::prefetch {

inline std::shared_ptr<const Residents> no_residents() {
  auto residents = std::make_shared<Residents>();
  residents->seal();
  return residents;
}

inline Op make_op(LaneId lane, std::vector<BufferId> reads, std::vector<BufferId> writes,
                  double bytes = 1) {
  Op op;
  op.kind = {1, "work"};
  op.lane = lane;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  op.cost.bytes = bytes;
  return op;
}

inline constexpr LaneId kFirst = 0, kSecond = 1;
inline const Lane kHost{"host", 1, Issue::kOldestReady};
inline const Lane kStream{"stream", 1, Issue::kFifo};
inline Pool pool_of(std::uint32_t slots, Bytes slot = 4_KiB) {
  return {"pool", Tier::kCpu, slot, slots};
}

/// A program under construction, sealed by done().
class Writing {
 public:
  explicit Writing(std::shared_ptr<const Residents> residents = no_residents())
      : residents_(std::move(residents)), program_(std::make_shared<Program>("test", residents_)) {}

  BufferId control() { return program_->buffer({}); }
  BufferId buffer(PoolId pool = 0, Bytes bytes = 4_KiB) {
    return program_->buffer({pool, bytes, MemoryTag::kParam});
  }
  BufferId part(BufferId root, Bytes offset, Bytes bytes) {
    return program_->part_of(root, offset, bytes);
  }
  void op(LaneId lane, std::vector<BufferId> reads, std::vector<BufferId> writes,
          double bytes = 1) {
    program_->op(make_op(lane, std::move(reads), std::move(writes), bytes));
  }
  void op_if(Predicate predicate, LaneId lane, std::vector<BufferId> reads,
             std::vector<BufferId> writes) {
    Op op = make_op(lane, std::move(reads), std::move(writes));
    op.predicate = predicate;
    program_->op(std::move(op));
  }
  std::shared_ptr<const Program> done() {
    program_->seal();
    return program_;
  }
  const std::shared_ptr<const Residents>& residents() const { return residents_; }

 private:
  std::shared_ptr<const Residents> residents_;
  std::shared_ptr<Program> program_;
};

}  // namespace sluice::prefetch
