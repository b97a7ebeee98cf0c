// The vocabulary: what make_op() refuses, and that every op of every program has the operands of
// its row.
#include "engine/schedule/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/schedule/adam.h"
#include "tests/schedule/placements.h"
#include "tests/support/errors.h"

namespace sluice::testing {
namespace {

using prefetch::BufferId;
using prefetch::Op;
using schedule::Access;
using schedule::Binding;
using schedule::Count;
using schedule::LaneKind;
using schedule::make_op;
using schedule::Operand;
using schedule::OperandSpec;
using schedule::OpId;
using schedule::OpRow;
using schedule::Runner;

std::vector<OpId> every_op() {
  std::vector<OpId> ids;
  for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(OpId::kCount); ++i) {
    ids.push_back(static_cast<OpId>(i));
  }
  return ids;
}

/// The operands of a row, each bound to buffers of its own: two where there may be several.
std::vector<Binding> bindings_of(const OpRow& row) {
  std::vector<Binding> bindings;
  BufferId next = 10;
  for (const OperandSpec& spec : row.operands) {
    std::vector<BufferId> buffers{next++};
    if (spec.count == Count::kSeveral) buffers.push_back(next++);
    bindings.emplace_back(spec.name, buffers);
  }
  return bindings;
}

/// A lane for rows that have none.
std::optional<LaneKind> lane_for(const OpRow& row) {
  return row.lane ? std::nullopt : std::optional(LaneKind::kCpu);
}

void expect_refused(OpId id, const std::vector<Binding>& bindings, std::optional<LaneKind> lane) {
  test::expect_error(Errc::kLogic, {schedule::row_of(id).name},
                     [&] { make_op(id, {}, bindings, {}, lane); });
}

TEST(MakeOp, RefusesAnOpThatLacksAnyOneOfItsOperands) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    const auto all = bindings_of(row);
    for (std::size_t n = 0; n < all.size(); ++n) {
      auto fewer = all;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(n));
      expect_refused(id, fewer, lane_for(row));
    }
  }
}

TEST(MakeOp, RefusesAnOperandThatIsNotInTheRow) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    const auto has = [&](Operand name) {
      return std::ranges::count(row.operands, name, &OperandSpec::name) > 0;
    };
    const Operand stranger = has(Operand::kOtherUse) ? Operand::kSource : Operand::kOtherUse;
    auto more = bindings_of(row);
    more.emplace_back(stranger, 99);
    expect_refused(id, more, lane_for(row));
    auto instead = bindings_of(row);
    instead.back() = Binding(stranger, 99);
    expect_refused(id, instead, lane_for(row));
  }
}

TEST(MakeOp, RefusesAnOperandThatIsBoundTwice) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    auto again = bindings_of(row);
    again.push_back(again.front());
    expect_refused(id, again, lane_for(row));
    if (row.operands.size() == 1) continue;
    auto instead = bindings_of(row);
    instead.back() = instead.front();
    expect_refused(id, instead, lane_for(row));
  }
}

TEST(MakeOp, RefusesNoBufferAndSeveralWhereThereIsOne) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    for (std::size_t n = 0; n < row.operands.size(); ++n) {
      auto bindings = bindings_of(row);
      bindings[n].buffers = {};
      expect_refused(id, bindings, lane_for(row));
      if (row.operands[n].count == Count::kSeveral) continue;
      bindings[n].buffers = {10, 11};
      expect_refused(id, bindings, lane_for(row));
    }
  }
}

TEST(MakeOp, NamesTheOperandThatItLacks) {
  auto bindings = bindings_of(schedule::row_of(OpId::kLayerBackward));
  ASSERT_EQ(bindings[4].name, Operand::kOutputGradient);
  bindings[4].name = Operand::kKept;
  test::expect_error(Errc::kLogic, {"layer backward", "'output gradient'"},
                     [&] { make_op(OpId::kLayerBackward, {}, bindings, {}); });
  bindings[4].name = Operand::kOutputGradient;
  bindings[4].buffers = {10, 11};
  test::expect_error(Errc::kLogic, {"layer backward", "one buffer as 'output gradient', 2"},
                     [&] { make_op(OpId::kLayerBackward, {}, bindings, {}); });
}

TEST(MakeOp, TakesALaneWhereTheRowHasNoneAndOnlyThere) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    if (row.lane) {
      EXPECT_EQ(make_op(id, {}, bindings_of(row), {}).lane, schedule::lane_of(*row.lane));
      expect_refused(id, bindings_of(row), *row.lane);
    } else {
      for (const LaneKind lane : {LaneKind::kCpu, LaneKind::kCompute}) {
        EXPECT_EQ(make_op(id, {}, bindings_of(row), {}, lane).lane, schedule::lane_of(lane));
      }
      expect_refused(id, bindings_of(row), std::nullopt);
    }
  }
}

TEST(MakeOp, KeepsTheNameOfEachBufferWhateverTheOrderOfTheBindings) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    const auto bindings = bindings_of(row);
    const std::vector<Binding> backwards(bindings.rbegin(), bindings.rend());
    const Op op = make_op(id, {.segment = 3, .chunk = 4}, backwards, {.bytes = 5}, lane_for(row));
    EXPECT_EQ(schedule::id_of(op), id);
    EXPECT_EQ(op.where.segment, 3);
    EXPECT_EQ(op.where.chunk, 4);
    EXPECT_EQ(op.cost.bytes, 5);
    for (std::size_t n = 0; n < bindings.size(); ++n) {
      const auto& [name, buffers] = bindings[n];
      std::vector<BufferId> reads, writes;
      for (std::size_t r = 0; r < op.reads.size(); ++r) {
        if (schedule::read_name(op, r) == name) reads.push_back(op.reads[r]);
      }
      for (std::size_t w = 0; w < op.writes.size(); ++w) {
        if (schedule::write_name(op, w) == name) writes.push_back(op.writes[w]);
      }
      const Access access = row.operands[n].access;
      const std::vector<BufferId> none;
      EXPECT_EQ(reads, access == Access::kWrite ? none : buffers) << row.name;
      EXPECT_EQ(writes, access == Access::kRead ? none : buffers) << row.name;
      EXPECT_EQ(schedule::buffer_of(op, name), buffers.front()) << row.name;
    }
  }
}

TEST(MakeOp, GivesABufferByNameOnlyWhereTheOpHasOne) {
  const Op op = make_op(OpId::kFetchBatch, {}, {{Operand::kSource, 1}, {Operand::kTarget, 2}}, {});
  test::expect_error(Errc::kLogic, {"fetch batch"},
                     [&] { schedule::buffer_of(op, Operand::kWeights); });
}

TEST(Vocabulary, EveryKindOfOpHasItsOwnIdAndName) {
  std::set<std::string> names;
  for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(OpId::kCount); ++i) {
    const auto kind = schedule::kind_of(static_cast<OpId>(i));
    EXPECT_EQ(kind.id, i);
    names.insert(kind.name);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(OpId::kCount));
}

/// Who may run the ops of a lane.
bool fits(Runner runner, std::optional<LaneKind> lane) {
  switch (runner) {
    case Runner::kModel:
      return lane == LaneKind::kCompute;
    case Runner::kArithmetic:
      return !lane;
    case Runner::kHost:
      return lane == LaneKind::kCpu || lane == LaneKind::kData || lane == LaneKind::kControl;
    case Runner::kCopyToDevice:
      return lane == LaneKind::kHostToDevice;
    case Runner::kCopyToHost:
      return lane == LaneKind::kDeviceToHost;
    case Runner::kReadDrive:
    case Runner::kReadModel:
      return lane == LaneKind::kNvmeRead;
    case Runner::kWriteDrive:
    case Runner::kCheckpoint:
      return lane == LaneKind::kNvmeWrite;
    case Runner::kSave:
      return lane == LaneKind::kData;
  }
  return false;
}

TEST(Vocabulary, EveryRowHasALaneThatItsRunnerServes) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    EXPECT_TRUE(fits(row.runner, row.lane)) << row.name;
  }
}

TEST(Vocabulary, EveryRowNamesAnOperandOnce) {
  for (const OpId id : every_op()) {
    const OpRow& row = schedule::row_of(id);
    std::set<Operand> names;
    for (const OperandSpec& spec : row.operands) names.insert(spec.name);
    EXPECT_EQ(names.size(), row.operands.size()) << row.name;
    EXPECT_FALSE(names.empty()) << row.name;
  }
}

TEST(Vocabulary, LanesAreNamedAfterTheirKinds) {
  const auto lanes = schedule::make_lanes();
  EXPECT_EQ(lanes[schedule::lane_of(LaneKind::kCompute)].name, "compute");
  EXPECT_EQ(lanes[schedule::lane_of(LaneKind::kDeviceToHost)].name, "d2h");
  EXPECT_EQ(lanes[schedule::lane_of(LaneKind::kNvmeWrite)].name, "nvme-write");
  EXPECT_EQ(lanes[schedule::lane_of(LaneKind::kControl)].name, "control");
  EXPECT_EQ(lanes.size(), static_cast<std::size_t>(LaneKind::kControl) + 1);
}

using Operands = EveryPlacement;
INSTANTIATE_TEST_SUITE_P(All, Operands, ::testing::ValuesIn(all_placements()), placement_name);
INSTANTIATE_TEST_SUITE_P(Arriving, Operands,
                         ::testing::ValuesIn(placements_by_segment(schedule::Update::kArriving)),
                         placement_name);
INSTANTIATE_TEST_SUITE_P(Delayed, Operands, ::testing::ValuesIn(delayed_placements()),
                         placement_name);

TEST_P(Operands, OfEveryOpAreThoseOfItsRow) {
  const Written run(GetParam());
  const auto works_at = [](bool device) { return device ? LaneKind::kCompute : LaneKind::kCpu; };
  for (const auto& program : run.programs()) {
    for (const Op& op : program->ops()) {
      const OpRow& row = schedule::row_of(schedule::id_of(op));
      EXPECT_STREQ(op.kind.name, row.name);
      const LaneKind arithmetic =
          works_at(schedule::is_adam(schedule::id_of(op)) ? GetParam().state_on_device()
                                                          : GetParam().gradient_on_device());
      EXPECT_EQ(op.lane, schedule::lane_of(row.lane.value_or(arithmetic))) << describe(op);
      ASSERT_EQ(op.names.size(), op.reads.size() + op.writes.size()) << describe(op);
      std::size_t named = 0;
      for (const OperandSpec& spec : row.operands) {
        const auto middle = op.names.begin() + static_cast<std::ptrdiff_t>(op.reads.size());
        const auto name = static_cast<std::uint8_t>(spec.name);
        const auto reads = std::count(op.names.begin(), middle, name);
        const auto writes = std::count(middle, op.names.end(), name);
        EXPECT_EQ(reads > 0, spec.access != Access::kWrite) << describe(op);
        EXPECT_EQ(writes > 0, spec.access != Access::kRead) << describe(op);
        EXPECT_TRUE(spec.count == Count::kSeveral || std::max(reads, writes) == 1) << describe(op);
        named += static_cast<std::size_t>(reads + writes);
      }
      EXPECT_EQ(named, op.names.size()) << describe(op);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
