/// What the host's ops and the head of a run leave behind, op by op.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/train/tier_bytes.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {

using Floats = std::vector<float>;
using ChunkId = std::pair<std::int32_t, std::int32_t>;                  // segment, chunk
using BatchId = std::tuple<Tag::Kind, std::int64_t, std::int32_t>;      // step, micro-batch
using UpdateId = std::tuple<std::int64_t, std::int32_t, std::int32_t>;  // step, chunk

/// One chunk's update in one step, as the op saw it.
struct Update {
  Record record;
  Floats gradient, before, after;  // the state: master, m, v
};

struct Sightings {
  std::map<ChunkId, Floats> initial;  // state
  std::map<UpdateId, Update> updates;
  std::map<BatchId, std::vector<std::int64_t>> batches;  // as batch.h has them
  std::map<BatchId, double> losses;
  std::int32_t micro_batches(Tag::Kind kind, std::int64_t step) const {
    return static_cast<std::int32_t>(std::ranges::count_if(losses, [&](const auto& seen) {
      return std::get<0>(seen.first) == kind && std::get<1>(seen.first) == step;
    }));
  }
  std::optional<std::int64_t> spoiled_step;  // it gets an infinite loss, and finite gradients
};

/// Copies what the host's ops and the head leave behind.
class Witness : public executor::Handler {
 public:
  Witness(executor::Handler& inner, const memory::SlotMemory& memory, Sightings& seen)
      : inner_(inner), memory_(memory), seen_(seen) {}

  Ticket start(const executor::OpContext& context) override {
    const OpBytes op = resolve(context, memory_);
    Update update;
    if (op.id == schedule::OpId::kAdam) {
      update.record = tiers_.read(op.values<Record>(schedule::Operand::kRecord)).front();
      update.gradient = floats(op, schedule::Operand::kGradient);
      update.before = floats(op, schedule::Operand::kState);
    }
    Ticket ticket = inner_.start(context);
    ticket.wait();
    const Tag tag = Tag::unpack(op.tag);
    const BatchId batch{tag.kind, tag.step, op.where.micro_batch};
    const std::lock_guard lock(mutex_);
    switch (op.id) {
      case schedule::OpId::kInitState:
        seen_.initial[{op.where.segment, op.where.chunk}] = floats(op, schedule::Operand::kState);
        break;
      case schedule::OpId::kLoadBatch:
        seen_.batches[batch] = tiers_.read(op.values<std::int64_t>(schedule::Operand::kBatch));
        break;
      case schedule::OpId::kHeadTrain:
      case schedule::OpId::kHeadTrainKeep:
        if (tag.step == seen_.spoiled_step)
          tiers_.write(op.values<double>(schedule::Operand::kLoss), double{INFINITY});
        [[fallthrough]];
      case schedule::OpId::kHeadLoss:
        seen_.losses[batch] = tiers_.read(op.values<double>(schedule::Operand::kLoss)).front();
        break;
      case schedule::OpId::kAdam:
        update.after = floats(op, schedule::Operand::kState);
        seen_.updates[{tag.step, op.where.segment, op.where.chunk}] = std::move(update);
        break;
      default:
        break;
    }
    return ticket;
  }
  void freed(const prefetch::Freed& slot) override { inner_.freed(slot); }

 private:
  Floats floats(const OpBytes& op, schedule::Operand name) {
    return tiers_.read(op.values<float>(name));
  }

  executor::Handler& inner_;
  const memory::SlotMemory& memory_;
  TierBytes tiers_;
  std::mutex mutex_;
  Sightings& seen_;
};

}  // namespace sluice::train
