// Every access that a program declares is there for a reason: a program that leaves one out is
// refused, or goes wrong when its ops run in the worst order, or its other accesses ask for the
// same orders.
//
// Each single access of each program of every placement is judged by the definition of an order
// (orders.h). Of each kind of access and each judgement one per placement, another one in each, is
// put to the check and to the scoreboard, which must say the same. The stream has two steps with an
// evaluation and a checkpoint between them: what crosses programs counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/schedule/held_back.h"
#include "tests/schedule/omission.h"
#include "tests/schedule/orders.h"
#include "tests/schedule/placements.h"

namespace sluice::testing {
namespace {

using prefetch::OpRef;
using prefetch::Program;
using schedule::Operand;
using schedule::OpId;
using Programs = std::vector<std::shared_ptr<const Program>>;

/// A slot for every buffer of the stream, and lanes that start whatever is ready: memory and lanes
/// order nothing but the compute stream.
RandomStream ample(const Written& run) {
  RandomStream stream{run.catalog.residents, run.catalog.pools, schedule::make_lanes(), {}, {}};
  stream.programs = run.stream();
  const auto make_room = [&](const prefetch::BufferTable& table) {
    for (const auto root : table.roots()) ++stream.pools[table.info(root).pool].slots;
  };
  make_room(*stream.residents);
  for (const auto& program : stream.programs) make_room(program->transients());
  for (auto& lane : stream.lanes) lane.width = 1 << 20;
  return stream;
}

/// The programs of a stream with one of them changed, wherever it stands.
Programs with(const RandomStream& stream, const Program& changed, const Change& change) {
  Programs programs = stream.programs;
  const auto other = rewritten(changed, stream.residents, change);
  for (auto& program : programs) {
    if (program.get() == &changed) program = other;
  }
  return programs;
}

/// Every step is applied: an op reads its record like anything else, and does its work.
RandomStream applied(const RandomStream& stream) {
  RandomStream real = stream;
  for (auto& program : real.programs) {
    program = rewritten(*program, stream.residents, [](std::size_t, prefetch::Op& op) {
      if (op.predicate) op.reads.push_back(op.predicate->record);
      op.predicate.reset();
    });
  }
  return real;
}

/// A placement, ready to leave things out.
class Trials {
 public:
  explicit Trials(const Placement& placement)
      : run_(placement),
        stream_(ample(run_)),
        orders_(stream_),
        real_(applied(stream_)),
        serial_(expected(real_)) {}

  Programs programs() const { return run_.programs(); }

  using Judged = std::map<Effect::Kind, std::vector<Omission>>;
  std::map<AccessKind, Judged> judge(const Program& program) {
    std::map<AccessKind, Judged> judged;
    for (const Omission& omission : omissions_of(program)) {
      const Effect effect = orders_.without(program, omission);
      judged[kind_of(program, omission)][effect.kind].push_back(omission);
    }
    return judged;
  }

  /// The check and the scoreboard say the same as the judgement.
  void hold(const Program& program, const Omission& omission) {
    const Programs programs = with(stream_, program, [&](std::size_t i, prefetch::Op& op) {
      if (i == omission.op) leave_out(op, omission);
    });
    const Effect effect = orders_.without(program, omission);
    EXPECT_EQ(refused(programs), effect.kind == Effect::Kind::kRefused);
    if (effect.kind == Effect::Kind::kLost) {
      EXPECT_NE(fault(programs, {effect.late}), "") << "an order is gone, and nothing shows it";
    } else if (effect.kind == Effect::Kind::kImplied) {
      // As late as can be, and as early: before all that it should follow.
      EXPECT_EQ(fault(programs, orders_.instances_of(program, omission.op)), "");
      EXPECT_EQ(fault(programs, orders_.predecessors(program, omission)), "");
    }
  }

 private:
  bool refused(const Programs& programs) const {
    prefetch::Initialised initialised(*stream_.residents);
    try {
      for (const auto& program : programs) {
        prefetch::check(*program, stream_.pools, stream_.lanes, initialised);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::kLogic) << error.what();
      return true;
    }
    return false;
  }
  /// What goes wrong when these ops are late; empty when all goes well.
  std::string fault(const Programs& programs, const std::vector<OpRef>& late) const {
    return HeldBackRun(real_, programs, late).fault(serial_);
  }

  Written run_;
  RandomStream stream_;
  Orders orders_;
  RandomStream real_;
  Results serial_;
};

/// Of those whose segments have records of their own, or whose updates are late, every third.
std::vector<Placement> tried_placements() {
  std::vector<Placement> tried = all_placements();
  for (const auto update : {schedule::Update::kEnd, schedule::Update::kArriving}) {
    const auto all = placements_by_segment(update);
    for (std::size_t i = 0; i < all.size(); i += 3) tried.push_back(all[i]);
  }
  const auto delayed = delayed_placements();
  for (std::size_t i = 0; i < delayed.size(); i += 3) tried.push_back(delayed[i]);
  return tried;
}

/// What is never missed: the other accesses ask for the same orders on every placement.
std::set<AccessKind> always_implied() {
  using enum Declared;
  std::set<AccessKind> kinds = {
      // The embedding's forward has read it before, its backward reads it after, on one stream.
      {OpId::kHeadTrain, kRead, Operand::kBatch},
      {OpId::kHeadTrainKeep, kRead, Operand::kBatch},
      {OpId::kLayerForward, kRead, Operand::kBatch},
      {OpId::kLayerForwardKeep, kRead, Operand::kBatch},
      {OpId::kLayerBackward, kRead, Operand::kBatch},
      {OpId::kLayerBackwardKept, kRead, Operand::kBatch},
      // The backward of the first layer, which is not kept here, reads it after, on one stream.
      {OpId::kLayerForwardKeep, kRead, Operand::kHostBatch},
      {OpId::kLayerBackwardKept, kRead, Operand::kHostBatch},
      // Of an update the write asks for every order that the read does.
      {OpId::kAccumulate, kRead, Operand::kSum},
      {OpId::kAddUses, kRead, Operand::kSum},
      {OpId::kInitState, kRead, Operand::kState},
      {OpId::kAdam, kRead, Operand::kState},
      {OpId::kAdamSplit, kRead, Operand::kState},
      {OpId::kDecide, kRead, Operand::kControl},
      {OpId::kEndUpdate, kRead, Operand::kControl},
      {OpId::kWriteRecord, kRead, Operand::kReceipts},
      {OpId::kInitGradient, kRead, Operand::kGradient},
      {OpId::kWriteGradient, kRead, Operand::kReceipts},
      // Its arithmetic and its predicate read the same record.
      {OpId::kAdam, kRead, Operand::kRecord},
      {OpId::kAdam, kPredicate, Operand::kRecord},
      {OpId::kAdamSplit, kRead, Operand::kRecord},
      {OpId::kAdamSplit, kPredicate, Operand::kRecord},
  };
  // The workspace belongs to one stream, which runs in order.
  for (const OpId id : {OpId::kEmbedForward, OpId::kLayerForward, OpId::kLayerForwardKeep,
                        OpId::kHeadTrain, OpId::kHeadTrainKeep, OpId::kHeadLoss,
                        OpId::kLayerBackward, OpId::kLayerBackwardKept, OpId::kEmbedBackward}) {
    kinds.insert({id, kWrite, Operand::kWorkspace});
  }
  return kinds;
}

TEST(LeftOut, EveryAccessIsMissedOnSomePlacementButForThoseWithAReason) {
  std::map<AccessKind, std::set<Effect::Kind>> effects;
  for (const Placement& placement : tried_placements()) {
    Trials trials(placement);
    for (const auto& program : trials.programs()) {
      for (const auto& [kind, judged] : trials.judge(*program)) {
        for (const auto& [effect, omissions] : judged) {
          // Room that one op alone has, for itself.
          const bool alone =
              kind == AccessKind{OpId::kHeadTrainKeep, Declared::kWrite, Operand::kKept};
          EXPECT_EQ(effect == Effect::Kind::kUngranted, alone) << placement << ", " << kind;
          effects[kind].insert(effect);
        }
      }
    }
  }
  std::set<AccessKind> implied;
  for (const auto& [kind, seen] : effects) {
    if (seen == std::set{Effect::Kind::kImplied}) implied.insert(kind);
  }
  EXPECT_EQ(implied, always_implied());
}

TEST(LeftOut, TheCheckOrTheWorstOrderNoticesWhatTheOtherAccessesDoNotImply) {
  std::size_t turn = 0;
  for (const Placement& placement : tried_placements()) {
    SCOPED_TRACE(placement.name());
    Trials trials(placement);
    ++turn;
    for (const auto& program : trials.programs()) {
      for (const auto& [kind, judged] : trials.judge(*program)) {
        for (const auto& [effect, omissions] : judged) {
          const Omission& omission = omissions[turn % omissions.size()];
          SCOPED_TRACE(::testing::PrintToString(kind) + ", op " + std::to_string(omission.op));
          trials.hold(*program, omission);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
