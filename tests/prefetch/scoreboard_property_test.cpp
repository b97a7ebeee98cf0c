/// What must hold for any stream of programs on any machine, in the simulator and in random orders.
/// The executor's tests hold the same on real threads.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "prefetch/simulate.h"
#include "tests/prefetch/random_order.h"
#include "tests/support/op_memory.h"
#include "tests/support/random_tape.h"

namespace sluice::testing {
namespace {

using prefetch::OpRef;

/// Runs the ops' work on the virtual clock.
class Worker final : public prefetch::Observer {
 public:
  explicit Worker(OpMemory& memory) : memory_(memory) {}
  void begins(const prefetch::Scoreboard& board, OpRef ref) override {
    memory_.begin(ref, [&](prefetch::BufferId root) { return board.slot(ref, root); });
  }
  void ends(const prefetch::Scoreboard& board, OpRef ref) override {
    memory_.end(ref, [&](prefetch::BufferId root) { return board.slot(ref, root); });
  }
  void freed(const prefetch::Freed& slot) override { memory_.freed(slot); }

 private:
  OpMemory& memory_;
};

/// Why the run is not as good as the serial one; empty when it is.
std::string fault(const RandomStream& stream, const OpMemory& memory) {
  if (!memory.complaint().empty()) return memory.complaint();
  return memory.results() == expected(stream) ? "" : "other results than the serial run";
}

std::string simulated_fault(const RandomStream& stream, const prefetch::Pools& pools,
                            prefetch::Derivations derive = {}) {
  OpMemory memory(stream, pools);
  Worker worker(memory);
  try {
    simulate({stream.residents, pools, stream.lanes, 2, derive}, stream.programs, stream.cost,
             &worker);
  } catch (const Error& error) {
    return error.what();
  }
  return fault(stream, memory);
}

prefetch::Pools some_more(const RandomStream& stream) {
  prefetch::Pools pools = stream.pools;
  for (auto& pool : pools) pool.slots += *rc::gen::inRange(0U, 4U);
  return pools;
}

void require_checked(const RandomStream& stream, const prefetch::Pools& pools) {
  prefetch::Initialised initialised(*stream.residents);
  for (const auto& program : stream.programs) check(*program, pools, stream.lanes, initialised);
}

RC_GTEST_PROP(Stream, SimulatedEqualsSerialAtTheSerialMinimum, ()) {
  const RandomStream stream = random_stream(*any_tape());
  require_checked(stream, stream.pools);
  RC_ASSERT(simulated_fault(stream, stream.pools) == "");
}

RC_GTEST_PROP(Stream, SimulatedEqualsSerialWithMoreMemory, ()) {
  const RandomStream stream = random_stream(*any_tape());
  RC_ASSERT(simulated_fault(stream, some_more(stream)) == "");
}

RC_GTEST_PROP(Stream, AnyOrderEqualsSerialAndNeverGetsStuck, ()) {
  const RandomStream stream = random_stream(*any_tape());
  const prefetch::Pools pools = some_more(stream);
  OpMemory memory(stream, pools);
  const Outcome outcome =
      RandomOrderRun(stream, pools, memory, {*rc::gen::arbitrary<std::uint64_t>(), {}, {}}).run();
  RC_ASSERT(outcome.drained);
  RC_ASSERT(fault(stream, memory) == "");
  std::vector<std::uint32_t> transients;
  for (const auto& pool : pools) transients.push_back(pool.slots);
  for (const auto root : stream.residents->roots()) {
    const auto pool = stream.residents->info(root).pool;
    if (pool != prefetch::kNoPool) --transients[pool];
  }
  RC_ASSERT(outcome.free_slots == transients);
}

RC_GTEST_PROP(Stream, StopEndsWhatIsInFlightAndStartsNothing, ()) {
  const RandomStream stream = random_stream(*any_tape());
  OpMemory memory(stream, stream.pools);
  std::size_t ops = 0;
  for (const auto& program : stream.programs) ops += program->ops().size();
  RC_PRE(ops > 0U);
  const auto stop_after = *rc::gen::inRange<std::size_t>(0, ops);
  const Outcome outcome = RandomOrderRun(stream, stream.pools, memory,
                                         {*rc::gen::arbitrary<std::uint64_t>(), stop_after, {}})
                              .run();
  RC_ASSERT(outcome.drained);
  RC_ASSERT(!outcome.started_after_stop);
  RC_ASSERT(memory.complaint() == "");
  RC_ASSERT(memory.begun() == memory.ended());
  RC_ASSERT(memory.begun() > stop_after);
}

/// Slots that each op of a serial run finds live, from first and last mention: the definition.
std::vector<std::vector<std::uint32_t>> live_slots(const prefetch::Program& program,
                                                   std::size_t pools) {
  const auto& table = program.transients();
  std::vector<std::vector<std::uint32_t>> live(program.ops().size(),
                                               std::vector<std::uint32_t>(pools, 0));
  const auto hold = [&](const prefetch::Buffer& buffer, std::size_t first, std::size_t last) {
    if (buffer.pool == prefetch::kNoPool) return;
    for (std::size_t i = first; i <= last; ++i) ++live[i][buffer.pool];
  };
  for (const auto root : program.residents().roots()) {
    if (!live.empty()) hold(program.residents().info(root), 0, live.size() - 1);
  }
  for (const auto root : table.roots()) {
    std::vector<std::size_t> named;
    for (std::size_t i = 0; i < program.ops().size(); ++i) {
      const prefetch::Op& op = program.ops()[i];
      const auto name = [&](prefetch::BufferId id) {
        if (program.root(id) == root) named.push_back(i);
      };
      std::for_each(op.reads.begin(), op.reads.end(), name);
      std::for_each(op.writes.begin(), op.writes.end(), name);
      if (op.predicate) name(op.predicate->record);
    }
    if (!named.empty()) hold(table.info(root), named.front(), named.back());
  }
  return live;
}

RC_GTEST_PROP(Stream, OneSlotLessThanTheMinimumIsRefusedWithTheOpThatLacksIt, ()) {
  const RandomStream stream = random_stream(*any_tape());
  for (std::size_t tight = 0; tight < stream.pools.size(); ++tight) {
    prefetch::Pools pools = stream.pools;
    std::uint32_t persistents = 0;
    for (const auto root : stream.residents->roots()) {
      persistents += stream.residents->info(root).pool == tight ? 1U : 0U;
    }
    if (pools[tight].slots == 0 || pools[tight].slots == persistents) continue;
    const std::uint32_t left = --pools[tight].slots;
    std::string refusal;
    std::string op;
    prefetch::Initialised initialised(*stream.residents);
    for (const auto& program : stream.programs) {
      const auto live = live_slots(*program, pools.size());
      for (std::size_t i = 0; i < live.size() && op.empty(); ++i) {
        if (live[i][tight] > left) op = describe(program->ops()[i]);
      }
      try {
        check(*program, pools, stream.lanes, initialised);
      } catch (const Error& error) {
        RC_ASSERT(error.code == Errc::kBudget);
        refusal = error.what();
        break;
      }
      RC_ASSERT(op == "");
    }
    RC_ASSERT(op != "");
    RC_ASSERT(refusal.find(": " + op + " asks pool '" + pools[tight].name + "'") !=
              std::string::npos);
    RC_ASSERT(refusal.find("0 B free of " + format_bytes(left * pools[tight].slot)) !=
              std::string::npos);
  }
}

struct Contents {
  std::size_t predicates = 0;
  std::size_t parts = 0, resident_parts = 0, controls = 0, resident_controls = 0;
};

Contents contents(const RandomStream& stream) {
  Contents has;
  const auto count = [](const prefetch::BufferTable& table, std::size_t& parts,
                        std::size_t& controls) {
    for (auto id = table.first_buffer(); id < table.end_buffer(); ++id) {
      parts += table.root(id) != id ? 1U : 0U;
      controls += table.info(id).pool == prefetch::kNoPool ? 1U : 0U;
    }
  };
  count(*stream.residents, has.resident_parts, has.resident_controls);
  for (const auto& program : stream.programs) {
    count(program->transients(), has.parts, has.controls);
    for (const auto& op : program->ops()) has.predicates += op.predicate ? 1U : 0U;
  }
  return has;
}

TEST(RandomStreams, HavePredicatesOfBothKindsPartsAndBuffersWithoutBytes) {
  constexpr std::size_t kStreams = 300;
  std::size_t called_off = 0, called = 0, everything = 0;
  for (std::uint64_t seed = 0; seed < kStreams; ++seed) {
    const RandomStream stream = random_stream(Tape::random(seed, 100 + seed % 400));
    const Contents has = contents(stream);
    const std::size_t off = expected(stream).called_off;
    called_off += off;
    called += has.predicates - off;
    everything += has.predicates > 0 && has.parts > 0 && has.resident_parts > 0 &&
                          has.controls > 0 && has.resident_controls > 0
                      ? 1U
                      : 0U;
  }
  EXPECT_GT(called_off, kStreams / 2);
  EXPECT_GT(called, kStreams / 2);
  EXPECT_GT(everything, kStreams / 10);
}

/// Each rule of the scoreboard is there for a reason: without it some stream goes wrong, and these
/// tests are sharp enough to see it.
struct Rule {
  const char* name;
  bool prefetch::Derivations::*flag;  // null: all rules hold
};
class LeftOut : public ::testing::TestWithParam<Rule> {};

TEST_P(LeftOut, SomeStreamGoesWrongInTheSimulator) {
  constexpr std::uint64_t kStreams = 3000;
  const auto flag = GetParam().flag;
  prefetch::Derivations derive;
  if (flag != nullptr) derive.*flag = false;
  std::string wrong;
  for (std::uint64_t seed = 0; seed < kStreams && wrong.empty(); ++seed) {
    const RandomStream stream = random_stream(Tape::random(seed, 100 + seed % 400));
    if (const Contents has = contents(stream); has.predicates == 0 || has.parts == 0) continue;
    prefetch::Pools pools = stream.pools;
    for (auto& pool : pools) pool.slots += seed % 3;
    wrong = simulated_fault(stream, pools, derive);
    if (!wrong.empty()) std::cout << "stream " << seed << ": " << wrong << '\n';
  }
  EXPECT_EQ(wrong.empty(), flag == nullptr);
}

using prefetch::Derivations;
const std::array kRules = {Rule{"Nothing", nullptr},
                           Rule{"ReadAfterWrite", &Derivations::read_after_write},
                           Rule{"WriteAfterRead", &Derivations::write_after_read},
                           Rule{"WriteAfterWrite", &Derivations::write_after_write},
                           Rule{"EveryRootGranted", &Derivations::every_root_granted}};
INSTANTIATE_TEST_SUITE_P(Rules, LeftOut, ::testing::ValuesIn(kRules),
                         [](const auto& rule) { return rule.param.name; });

}  // namespace
}  // namespace sluice::testing
