#include "engine/bench/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/errors.h"

namespace sluice::bench {
namespace {

using nvme::Engine;

Terms usual() {
  Terms terms;
  terms.engines = {Engine::kIoUring, Engine::kLibaio, Engine::kThreads};
  terms.traffics = {Traffic::kRead, Traffic::kWrite, Traffic::kMixed};
  terms.seconds = 300;
  terms.most_written = 1024_GiB;
  terms.line = 2_GiB;
  terms.request = 32_MiB;
  terms.rate = 2e9;
  terms.seed = 1;
  return terms;
}

/// As if larger blocks were faster and io_uring the best.
std::vector<Summary> measured(const std::vector<Turn>& runs) {
  std::vector<Summary> summaries;
  for (const Turn& run : runs) {
    if (std::ranges::count(summaries, run.point, &Summary::point) > 0) continue;
    Summary summary;
    summary.point = run.point;
    summary.read_rate = 1e9 + static_cast<double>(run.point.in_flight());
    if (run.point.engine == Engine::kIoUring) summary.read_rate += 1e9;
    summaries.push_back(summary);
  }
  return summaries;
}

struct Stages {
  std::vector<Turn> coarse, finer, finals;
  std::vector<Turn> all() const {
    std::vector<Turn> runs = coarse;
    runs.insert(runs.end(), finer.begin(), finer.end());
    runs.insert(runs.end(), finals.begin(), finals.end());
    return runs;
  }
};

Stages stages(const Sweep& sweep) {
  Stages stages;
  stages.coarse = sweep.coarse();
  std::vector<Summary> known = measured(stages.coarse);
  stages.finer = sweep.finer(known);
  for (const Summary& summary : measured(stages.finer)) known.push_back(summary);
  stages.finals = sweep.finals(known);
  return stages;
}

double seconds_of(const std::vector<Turn>& runs) {
  double seconds = 0;
  for (const Turn& run : runs) seconds += run.seconds;
  return seconds;
}

Bytes written_by(const std::vector<Turn>& runs) {
  Bytes written = 0;
  for (const Turn& run : runs) written += run.most_written;
  return written;
}

std::set<std::tuple<Bytes, unsigned>> pairs_of(const std::vector<Turn>& runs) {
  std::set<std::tuple<Bytes, unsigned>> pairs;
  for (const Turn& run : runs) pairs.insert({run.point.block, run.point.depth});
  return pairs;
}

TEST(Sweep, CoarseHasEveryEngineAndTrafficAtEveryPairThatIsPossible) {
  const std::vector<Turn> coarse = Sweep(usual()).coarse();
  const auto pairs = pairs_of(coarse);
  EXPECT_GE(pairs.size(), 20U);
  EXPECT_EQ(coarse.size(), pairs.size() * 9);
  EXPECT_TRUE(pairs.contains({128_KiB, 1U}));
  EXPECT_TRUE(pairs.contains({16_MiB, 4U}));
}

TEST(Sweep, MoreTimeMeansAFinerGrid) {
  std::size_t before = 0;
  for (const double seconds : {5., 60., 300., 1200.}) {
    Terms terms = usual();
    terms.seconds = seconds;
    const std::size_t pairs = pairs_of(Sweep(terms).coarse()).size();
    EXPECT_GT(pairs, before) << seconds;
    before = pairs;
  }
}

TEST(Sweep, KeepsToItsTimeAndToWhatItPlanned) {
  for (const double seconds : {60., 300., 1200.}) {
    Terms terms = usual();
    terms.seconds = seconds;
    const Sweep sweep(terms);
    const std::vector<Turn> all = stages(sweep).all();
    EXPECT_LE(seconds_of(all), seconds);
    EXPECT_GE(seconds_of(all), 0.3 * seconds);
    EXPECT_LE(written_by(all), sweep.planned_writes());
    EXPECT_LE(sweep.planned_writes(), terms.most_written);
  }
}

TEST(Sweep, WritesNoMoreThanItMay) {
  Terms terms = usual();
  terms.most_written = 40_GiB;
  const Sweep sweep(terms);
  EXPECT_LE(sweep.planned_writes(), terms.most_written);
  EXPECT_LE(written_by(stages(sweep).all()), sweep.planned_writes());
  for (const Turn& run : sweep.coarse()) {
    EXPECT_EQ(run.most_written == 0, run.point.traffic == Traffic::kRead);
    EXPECT_EQ(run.most_written % kAlignment, 0U);
  }
}

TEST(Sweep, SaysHowMuchItMustBeAllowedToWrite) {
  Terms terms = usual();
  terms.most_written = 1_GiB;
  terms.written_else = 1_GiB;
  test::expect_error(Errc::kConfig, {"--max-write", "leaves 2.0 GiB", "--read-only"},
                     [&] { const Sweep sweep(terms); });
}

TEST(Sweep, OnlyReadingPlansNoWrites) {
  Terms terms = usual();
  terms.traffics = {Traffic::kRead};
  terms.most_written = 0;
  const Sweep sweep(terms);
  EXPECT_EQ(sweep.planned_writes(), 0U);
  const Stages all = stages(sweep);
  EXPECT_EQ(written_by(all.all()), 0U);
  for (const Turn& run : all.all()) EXPECT_EQ(run.point.traffic, Traffic::kRead);
  EXPECT_FALSE(all.finals.empty());
}

TEST(Sweep, FinerLooksAroundTheBestAtWhatIsNotKnown) {
  Terms terms = usual();
  terms.seconds = 120;
  const Sweep sweep(terms);
  const std::vector<Summary> known = measured(sweep.coarse());
  const auto best = std::ranges::max_element(known, {}, [](const Summary& summary) {
    return summary.point.traffic == Traffic::kMixed ? summary.rate() : 0;
  });
  int repeated = 0, near = 0;
  for (const Turn& run : sweep.finer(known)) {
    if (run.point == best->point) ++repeated;
    if (std::ranges::count(known, run.point, &Summary::point) == 0) ++near;
  }
  EXPECT_EQ(repeated, 2);
  EXPECT_GE(near, 2);
}

TEST(Sweep, FinalsRepeatTheBestOfEachTrafficForLonger) {
  for (const double seconds : {60., 300.}) {
    Terms terms = usual();
    terms.seconds = seconds;
    const Sweep sweep(terms);
    const std::vector<Turn> coarse = sweep.coarse();
    const std::vector<Summary> known = measured(coarse);
    const std::vector<Turn> finals = sweep.finals(known);
    for (const Traffic traffic : terms.traffics) {
      const auto best = std::ranges::max_element(known, {}, [&](const Summary& summary) {
        return summary.point.traffic == traffic ? summary.rate() : 0;
      });
      EXPECT_EQ(std::ranges::count(finals, best->point, &Turn::point), 3) << name_of(traffic);
    }
    EXPECT_GE(finals.front().seconds, 2 * coarse.front().seconds);
  }
}

TEST(Sweep, IsShuffledAndTheSameForOneSeed) {
  const auto points = [](std::uint64_t seed) {
    Terms terms = usual();
    terms.seed = seed;
    std::vector<std::tuple<Engine, Bytes, unsigned, Traffic>> order;
    for (const Turn& run : Sweep(terms).coarse()) {
      order.emplace_back(run.point.engine, run.point.block, run.point.depth, run.point.traffic);
    }
    return order;
  };
  EXPECT_EQ(points(1), points(1));
  EXPECT_NE(points(1), points(2));
  EXPECT_FALSE(std::ranges::is_sorted(points(1)));
}

TEST(Sweep, EveryPointFindsRoomOnItsPartOfTheLine) {
  for (const Bytes line : {Bytes{1_MiB}, Bytes{64_MiB}, Bytes{1_GiB}}) {
    Terms terms = usual();
    terms.line = line;
    terms.request = std::min<Bytes>(32_MiB, line / 16);
    for (const Turn& run : stages(Sweep(terms)).all()) {
      const Bytes part = line / (run.point.traffic == Traffic::kMixed ? 2 : 1);
      EXPECT_LE(run.point.block, terms.request);
      EXPECT_LE((requests_at_a_time(run.point, terms.request) + 1) * terms.request, part);
    }
  }
}

TEST(Sweep, OnASlowDriveLittleIsInFlight) {
  Terms terms = usual();
  terms.rate = 20e6;
  terms.request = 2_MiB;
  for (const Turn& run : Sweep(terms).coarse()) EXPECT_LE(run.point.in_flight(), 10_MiB);
}

}  // namespace
}  // namespace sluice::bench
