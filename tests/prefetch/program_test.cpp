#include "prefetch/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/prefetch/programs.h"
#include "tests/support/errors.h"

namespace sluice::prefetch {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

Minimum check_alone(const Program& program, const Pools& pools, const Lanes& lanes) {
  Initialised initialised(program.residents());
  return check(program, pools, lanes, initialised);
}

TEST(BufferTable, PartsAreLeavesAndTheirGapsAreOneMore) {
  BufferTable table(10, 100);
  const BufferId root = table.buffer({0, 4_KiB, MemoryTag::kParam});
  const BufferId late = table.part_of(root, 2_KiB, 1_KiB);
  const BufferId early = table.part_of(root, 0, 1_KiB);
  const BufferId whole = table.buffer({});
  table.seal();
  EXPECT_EQ(root, 10U);
  EXPECT_EQ(table.root(late), root);
  EXPECT_EQ(table.leaves(early).begin, 100U);
  EXPECT_EQ(table.leaves(late).begin, 101U);
  EXPECT_EQ(table.leaves(root).end, 103U);
  EXPECT_EQ(table.leaves(whole).begin, 103U);
  EXPECT_EQ(table.end_leaf(), 104U);
}

TEST(BufferTable, PartsThatCoverTheirRootLeaveNoGap) {
  BufferTable table;
  const BufferId root = table.buffer({0, 2_KiB, MemoryTag::kParam});
  table.part_of(root, 0, 1_KiB);
  table.part_of(root, 1_KiB, 1_KiB);
  table.seal();
  EXPECT_EQ(table.end_leaf(), 2U);
}

TEST(BufferTable, RefusesPartsThatOverlapLeaveTheRootOrHaveParts) {
  BufferTable table;
  const BufferId root = table.buffer({0, 4_KiB, MemoryTag::kParam});
  const BufferId part = table.part_of(root, 0, 2_KiB);
  EXPECT_THROW(table.part_of(part, 0, 1_KiB), Error);
  EXPECT_THROW(table.part_of(root, 3_KiB, 2_KiB), Error);
  EXPECT_THROW(table.part_of(root, ~Bytes{0}, 2), Error);
  EXPECT_THROW(table.part_of(root, 0, 0), Error);
  EXPECT_THROW(table.part_of(99, 0, 1), Error);
  EXPECT_THROW(table.part_of(table.buffer({}), 0, 0), Error);
  table.part_of(root, 2_KiB - 1, 1_KiB);
  EXPECT_THROW(table.seal(), Error);
}

TEST(BufferTable, BytesWithoutAPoolAndAPoolWithoutBytesAreRefused) {
  BufferTable table;
  EXPECT_THROW(table.buffer({kNoPool, 1, MemoryTag::kParam}), Error);
  EXPECT_THROW(table.buffer({0, 0, MemoryTag::kParam}), Error);
}

TEST(LeafSet, HoldsEachLeafOnceInOrderInAsFewRangesAsThereAre) {
  const LeafSet set({{7, 9}, {2, 4}, {3, 5}, {5, 6}, {8, 9}, {11, 12}});
  EXPECT_THAT(set, ElementsAre(2U, 3U, 4U, 5U, 7U, 8U, 11U));
  EXPECT_THAT(set.ranges(), ElementsAre(LeafRange{2, 6}, LeafRange{7, 9}, LeafRange{11, 12}));
  for (LeafId leaf = 0; leaf < 14; ++leaf) {
    EXPECT_EQ(set.contains(leaf), std::count(set.begin(), set.end(), leaf) == 1) << leaf;
  }
  EXPECT_TRUE(LeafSet().begin() == LeafSet().end());
}

TEST(Program, NamingABufferOfManyPartsIsOneRange) {
  Writing w;
  const BufferId root = w.buffer();
  for (Bytes i = 0; i < 300; ++i) w.part(root, i, 1);
  w.op(0, {root}, {w.part(root, 300, 1), root});
  const auto program = w.done();
  EXPECT_EQ(program->accesses(0).reads.ranges().size(), 1U);
  EXPECT_EQ(program->accesses(0).writes.ranges().size(), 1U);
  EXPECT_EQ(std::distance(program->accesses(0).reads.begin(), program->accesses(0).reads.end()),
            302);  // 301 parts and what is left
}

TEST(Program, TheFirstOpThatNamesARootOrAPartDefinesTheRoot) {
  Writing w;
  const BufferId root = w.buffer();
  const BufferId part = w.part(root, 1_KiB, 1_KiB);
  w.op(0, {}, {part});
  w.op(0, {part}, {root, part});
  const auto program = w.done();
  EXPECT_THAT(program->accesses(0).defines, ElementsAre(root));
  EXPECT_TRUE(program->accesses(1).defines.empty());
  EXPECT_THAT(program->accesses(1).roots, ElementsAre(root));
  EXPECT_EQ(program->users(root), 2U);
  EXPECT_THAT(program->accesses(1).writes, ElementsAre(0U, 1U));
}

TEST(Program, TheRecordOfAPredicateIsReadByTheOpAndLivesUntilItIsDone) {
  Writing w;
  const BufferId record = w.buffer(), x = w.control();
  w.op(0, {}, {record});
  w.op_if({record, 3}, 0, {}, {x});
  const auto program = w.done();
  EXPECT_THAT(program->accesses(1).reads, ElementsAre(program->transients().leaves(record).begin));
  EXPECT_THAT(program->accesses(1).roots, ElementsAre(record, x));
  EXPECT_EQ(program->users(record), 2U);
  EXPECT_TRUE(program->ops()[1].reads.empty());
  EXPECT_EQ(program->ops()[1].predicate->field, 3U);
}

TEST(Check, MinimumIsPersistentsAndTheLargestLiveSetOfTheSerialRun) {
  auto residents = std::make_shared<Residents>();
  residents->buffer({0, 4_KiB, MemoryTag::kState});
  residents->seal();
  Writing w(residents);
  const BufferId a = w.buffer(), b = w.buffer(), c = w.buffer(1);
  w.op(0, {}, {a});
  w.op(0, {a}, {b});
  w.op(0, {b}, {c});
  EXPECT_THAT(check_alone(*w.done(), {pool_of(3), pool_of(1)}, {kHost}).slots, ElementsAre(3, 1));
}

TEST(Check, RefusesWhatDoesNotFitWithOpPoolClassAskedAndFree) {
  Writing w;
  const BufferId a = w.buffer(), b = w.buffer(0, 3_KiB);
  w.op(0, {}, {a});
  w.op(0, {a}, {b});
  const auto program = w.done();
  expect_error(Errc::kBudget,
               {"test: work asks pool 'pool' (cpu tier) for 3.0 KiB of parameters, 0 B free of 4.0 "
                "KiB (1 slots of 4.0 KiB)"},
               [&] { check_alone(*program, {pool_of(1)}, {kHost}); });
}

TEST(Check, RefusesPersistentsThatDoNotFit) {
  auto residents = std::make_shared<Residents>();
  residents->buffer({0, 4_KiB, MemoryTag::kState});
  residents->seal();
  const auto program = Writing(residents).done();
  expect_error(Errc::kBudget, {"of optimizer state, 0 B free of 0 B"},
               [&] { check_alone(*program, {pool_of(0)}, {kHost}); });
  expect_error(Errc::kLogic, {"names pool 0 of 0"}, [&] { check_alone(*program, {}, {kHost}); });
}

TEST(Check, RefusesAReadOfWhatNothingHasWritten) {
  Writing w;
  const BufferId root = w.buffer();
  const BufferId part = w.part(root, 0, 1_KiB);
  w.op(0, {}, {part});
  w.op(0, {root}, {});
  const auto program = w.done();
  expect_error(Errc::kLogic, {"(op 1) reads a transient buffer that nothing has written"},
               [&] { check_alone(*program, {pool_of(1)}, {kHost}); });
}

TEST(Check, RefusesAPredicateOnARecordThatNothingHasWritten) {
  Writing w;
  w.op_if({w.buffer(), 0}, 0, {}, {});
  const auto program = w.done();
  expect_error(Errc::kLogic, {"(op 0) reads a transient buffer that nothing has written"},
               [&] { check_alone(*program, {pool_of(1)}, {kHost}); });
}

TEST(Check, RefusesAPredicateOnARecordWithoutBytes) {
  Writing w;
  const BufferId record = w.control();
  w.op(0, {}, {record});
  w.op_if({record, 0}, 0, {}, {});
  const auto program = w.done();
  expect_error(Errc::kLogic, {"test: work asks a record that has no bytes"},
               [&] { check_alone(*program, {}, {kHost}); });
}

TEST(Check, BuffersWithoutBytesTakeNoSlotAndAreWrittenBeforeTheyAreRead) {
  auto residents = std::make_shared<Residents>();
  const BufferId kept = residents->buffer({});
  residents->seal();
  const auto program = [&](bool written) {
    Writing w(residents);
    const BufferId control = w.control();
    if (written) w.op(0, {}, {control});
    w.op(0, {control}, {kept});
    w.op(0, {kept}, {control, w.buffer()});
    return w.done();
  };
  EXPECT_THAT(check_alone(*program(true), {pool_of(1)}, {kHost}).slots, ElementsAre(1));
  const auto unwritten = program(false);
  expect_error(Errc::kLogic, {"(op 0) reads a transient buffer that nothing has written"},
               [&] { check_alone(*unwritten, {pool_of(1)}, {kHost}); });
}

TEST(Check, PersistentsStayWrittenForLaterPrograms) {
  auto residents = std::make_shared<Residents>();
  const BufferId record = residents->buffer({});
  residents->seal();
  Writing reading(residents), writing(residents);
  reading.op(0, {record}, {});
  writing.op(0, {}, {record});
  const auto reader = reading.done(), writer = writing.done();
  Initialised initialised(*residents);
  expect_error(Errc::kLogic, {"reads a persistent buffer"},
               [&] { check(*reader, {}, {kHost}, initialised); });
  check(*writer, {}, {kHost}, initialised);
  check(*reader, {}, {kHost}, initialised);
}

TEST(Check, ARefusedProgramInitialisesNothing) {
  auto residents = std::make_shared<Residents>();
  const BufferId record = residents->buffer({});
  residents->seal();
  Writing w(residents);
  w.op(0, {}, {record});
  w.op(7, {}, {});
  const auto program = w.done();
  Initialised initialised(*residents);
  EXPECT_THROW(check(*program, {}, {kHost}, initialised), Error);
  EXPECT_FALSE(initialised.contains(residents->leaves(record).begin));
}

TEST(Check, RefusesLanesThatAreMissingOrRunNothing) {
  Writing w;
  w.op(1, {}, {});
  const auto program = w.done();
  expect_error(Errc::kLogic, {"names lane 1 of 1"}, [&] { check_alone(*program, {}, {kHost}); });
  expect_error(Errc::kLogic, {"its width is 0"}, [&] {
    check_alone(*program, {}, {kHost, {"idle", 0, Issue::kFifo}});
  });
}

TEST(Check, RefusesBuffersLargerThanTheirSlotAndPoolsThatAreMissing) {
  Writing large;
  large.op(0, {}, {large.buffer(0, 5_KiB)});
  const auto too_large = large.done();
  expect_error(Errc::kLogic,
               {"puts 5.0 KiB of parameters into pool 'pool', whose slots have 4.0 KiB"},
               [&] { check_alone(*too_large, {pool_of(9)}, {kHost}); });
  Writing missing;
  missing.op(0, {}, {missing.buffer(3)});
  const auto no_pool = missing.done();
  expect_error(Errc::kLogic, {"names pool 3 of 1"},
               [&] { check_alone(*no_pool, {pool_of(9)}, {kHost}); });
}

}  // namespace
}  // namespace sluice::prefetch
