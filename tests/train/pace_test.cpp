/// Scripted steps, and runs whose rates are given by hand: no clock decides here.

#include "engine/train/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "engine/schedule/ops.h"
#include "tests/support/occurrences.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

using data::LaneShare;
using data::StepRecord;
using schedule::LaneKind;
using test::occurrences;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Busy = std::map<LaneKind, double>;  // seconds
using Said = std::vector<std::string>;

constexpr int kFewest = Pace::kFewest, kMost = Pace::kMost;

std::vector<LaneShare> shares(const Busy& busy, double seconds) {
  std::vector<LaneShare> lanes;
  for (const prefetch::Lane& lane : schedule::make_lanes()) {
    const auto found = busy.find(static_cast<LaneKind>(lanes.size()));
    lanes.push_back({lane.name, found == busy.end() ? 0 : found->second / seconds, {}});
  }
  return lanes;
}

const Busy kForecast = {{LaneKind::kCompute, 0.9},
                        {LaneKind::kNvmeRead, 0.4},
                        {LaneKind::kNvmeWrite, 0.5},
                        {LaneKind::kCpu, 0.3}};

/// Of a run whose forecast is one second, and whose steps read and write a gigabyte.
StepRecord step(double seconds, const Busy& busy) {
  StepRecord record;
  record.seconds = seconds;
  record.lanes = shares(busy, seconds);
  record.forecast = data::Forecast{1, shares(kForecast, 1)};
  record.nvme_read_bytes = record.nvme_write_bytes = 1'000'000'000;
  return record;
}

/// As forecast, but for one lane, which makes the step longer by as much.
StepRecord longer(LaneKind lane, double by) {
  Busy busy = kForecast;
  busy[lane] += by;
  return step(1 + by, busy);
}

/// As forecast, but for one lane, whose time there was in the step anyway.
StepRecord hidden(LaneKind lane, double busy_s) {
  Busy busy = kForecast;
  busy[lane] = busy_s;
  return step(1, busy);
}

StepRecord unforecast(StepRecord record) {
  record.forecast.reset();
  return record;
}

Said feed(Pace& pace, int steps, const StepRecord& each) {
  Said said;
  for (int i = 0; i < steps; ++i) {
    for (const std::string& found : pace.add(each)) said.push_back(found);
  }
  return said;
}

Said feed(Pace& pace, int steps, const std::function<StepRecord(int)>& each) {
  Said said;
  for (int i = 0; i < steps; ++i) {
    for (const std::string& found : pace.add(each(i))) said.push_back(found);
  }
  return said;
}

TEST(Pace, OfARunThatGoesAsForecastNothingIsSaid) {
  Pace pace;
  EXPECT_THAT(feed(pace, 50, longer(LaneKind::kCompute, 0)), IsEmpty());
  EXPECT_THAT(feed(pace, 50, longer(LaneKind::kCompute, 0.19)), IsEmpty());
}

TEST(Pace, AStepThatIsLateSaysWhichLaneItWasOnce) {
  Pace pace;
  EXPECT_THAT(feed(pace, kFewest - 1, longer(LaneKind::kCompute, 0.31)), IsEmpty());
  EXPECT_THAT(
      feed(pace, 100, longer(LaneKind::kCompute, 0.31)),
      ElementsAre("the step takes 1.31 s, 31% more than the forecast 1.00 s: compute was busy for "
                  "1.21 s, forecast 0.900 s: ops take longer than at the start: something else "
                  "uses the processor, a quota of its cgroup is used up, or it is hot"));
}

TEST(Pace, TheLaneIsTheOneThatLostMost) {
  Busy busy = kForecast;
  busy[LaneKind::kCompute] = 0.95;  // the busiest still
  busy[LaneKind::kCpu] = 0.7;
  busy[LaneKind::kNvmeWrite] = 0.8;
  Pace pace;
  EXPECT_THAT(feed(pace, kFewest, step(1.5, busy)),
              ElementsAre(HasSubstr(": cpu was busy for 0.700 s, forecast 0.300 s: Adam")));
}

TEST(Pace, EveryLaneHasItsReason) {
  std::set<std::string> reasons;
  for (std::size_t lane = 0; lane < schedule::make_lanes().size(); ++lane) {
    Pace pace;
    const Said said = feed(pace, kFewest, longer(static_cast<LaneKind>(lane), 0.5));
    ASSERT_EQ(said.size(), 1U);
    const std::string name = schedule::make_lanes()[lane].name;
    EXPECT_THAT(said[0], HasSubstr(": " + name + " was busy for "));
    reasons.insert(said[0].substr(said[0].find(": ", said[0].find(", forecast ")) + 2));
  }
  EXPECT_EQ(reasons.size(), 6U) << "those of copies are alike, and those of drives";
  EXPECT_FALSE(reasons.contains(""));
}

/// A tenth of what the step lost is more than noise.
TEST(Pace, WhereNoLaneWasBusierTheBusiestOneSaysWhatItWaitedFor) {
  const auto waiting = [](double compute_s) {
    Busy busy = kForecast;
    busy[LaneKind::kCompute] = compute_s;
    StepRecord record = step(1.5, busy);
    record.lanes[0].idle = {{"cpu", 0.1 / 1.5}, {"h2d", 0.4 / 1.5}, {"stream", 0.05 / 1.5}};
    record.lanes[5].idle = {{"compute", 1.0 / 1.5}};
    return record;
  };
  for (const double compute_s : {0.9, 0.949}) {
    Pace pace;
    EXPECT_THAT(
        feed(pace, kFewest, waiting(compute_s)),
        ElementsAre("the step takes 1.50 s, 50% more than the forecast 1.00 s: no lane was "
                    "busy for so much longer than forecast; compute, the busiest of the forecast, "
                    "waited for h2d most: 0.400 s"));
  }
  Pace pace;
  EXPECT_THAT(feed(pace, kFewest, waiting(0.951)),
              ElementsAre(HasSubstr("compute was busy for 0.951 s")));
}

TEST(Pace, SingleStepsThatAreSlowAreNotTheRun) {
  Pace pace;
  const auto bursts = [](int i) { return longer(LaneKind::kCompute, i % 5 > 2 ? 3 : 0); };
  EXPECT_THAT(feed(pace, 100, bursts), IsEmpty());
  const auto half_of_six = [](int i) {
    return longer(LaneKind::kCompute, i < 2 || i == kFewest ? 3 : 0);
  };
  Pace young;
  EXPECT_THAT(feed(young, 100, half_of_six), IsEmpty());
}

TEST(Pace, ARunThatBecomesSlowSaysSoWhenMostOfTheLastStepsAre) {
  Pace pace;
  feed(pace, 100, longer(LaneKind::kCompute, 0));
  EXPECT_THAT(feed(pace, kMost / 2, longer(LaneKind::kCompute, 0.5)), IsEmpty());
  EXPECT_THAT(feed(pace, 1, longer(LaneKind::kCompute, 0.5)),
              ElementsAre(HasSubstr("the step takes 1.50 s")));
  EXPECT_THAT(feed(pace, 100, longer(LaneKind::kCompute, 0.5)), IsEmpty());
}

TEST(Pace, AStepThatBecomesTwiceAsLateIsToldAgain) {
  Pace pace;
  feed(pace, 100, longer(LaneKind::kCompute, 0.5));
  EXPECT_THAT(feed(pace, 100, longer(LaneKind::kCompute, 1.9)), IsEmpty());
  EXPECT_THAT(feed(pace, 100, longer(LaneKind::kNvmeRead, 2.1)),
              testing::Contains(HasSubstr("the step takes 3.10 s, 210% more")));
}

TEST(Pace, WhereNothingWasForecastNoStepIsLate) {
  Pace pace;
  EXPECT_THAT(feed(pace, 100, unforecast(longer(LaneKind::kCompute, 5))), IsEmpty());
  EXPECT_THAT(pace.unjudged(false).value(), HasSubstr("too long to be simulated"));
}

TEST(DrivePace, OfADriveThatIsAsItWasNothingIsSaid) {
  Pace pace;
  const auto noisy = [](int i) { return hidden(LaneKind::kNvmeWrite, i % 2 == 0 ? 0.4 : 0.6); };
  EXPECT_THAT(feed(pace, 100, noisy), IsEmpty());
  const auto once = [](int i) { return hidden(LaneKind::kNvmeRead, i == 50 ? 0.99 : 0.4); };
  EXPECT_THAT(feed(pace, 100, once), IsEmpty());
}

/// 0.6 of the forecast's 2 GB/s is the limit.
TEST(DrivePace, OneThatIsSlowFromTheStartIsSlowerThanForecast) {
  Pace good;
  EXPECT_THAT(feed(good, 100, hidden(LaneKind::kNvmeWrite, 0.5 / 0.61)), IsEmpty());
  Pace pace;
  EXPECT_THAT(feed(pace, 100, hidden(LaneKind::kNvmeWrite, 0.5 / 0.5)),
              ElementsAre("nvme-write moves 1 GB/s while it is busy, forecast 2 GB/s: the drive's "
                          "cache is full, it is hot, something else uses it or the processor, or "
                          "a quota of the cgroup is used up"));
  Pace unknown;
  EXPECT_THAT(feed(unknown, 100, unforecast(hidden(LaneKind::kNvmeWrite, 1))), IsEmpty());
}

/// Two gigabytes in one second, whichever way.
TEST(DrivePace, HowItSharesItselfBetweenReadsAndWritesIsItsOwn) {
  const auto shared = [](double read_s, double write_s) {
    Busy busy = kForecast;
    busy[LaneKind::kNvmeRead] = read_s;
    busy[LaneKind::kNvmeWrite] = write_s;
    return busy;
  };
  for (const auto& [read_s, write_s] : {std::pair(0.8, 0.2), {0.2, 0.8}}) {
    StepRecord record = step(1, shared(0.5, 0.5));
    record.forecast->lanes = shares(shared(read_s, write_s), 1);
    Pace pace;
    EXPECT_THAT(feed(pace, 50, record), IsEmpty());
  }
}

TEST(DrivePace, OneThatBecomesSlowIsSlowerThanBefore) {
  for (const bool forecast : {false, true}) {
    const auto then = [&](double busy_s) {
      const StepRecord record = hidden(LaneKind::kNvmeRead, busy_s);
      return forecast ? record : unforecast(record);
    };
    Pace pace;
    EXPECT_THAT(feed(pace, 30, then(0.2)), IsEmpty());
    EXPECT_THAT(feed(pace, 100, then(0.32)), IsEmpty());
    EXPECT_THAT(feed(pace, 100, then(0.4)),
                ElementsAre(HasSubstr("nvme-read moves 2.5 GB/s while it is busy, before 5 GB/s")));
  }
}

/// 2% of a step is the limit.
TEST(DrivePace, OneThatIsHardlyBusyMayBeAsSlowAsItLikes) {
  const auto then = [](double busy_s) { return unforecast(hidden(LaneKind::kNvmeRead, busy_s)); };
  Pace pace;
  feed(pace, 30, then(0.01));
  EXPECT_THAT(feed(pace, 100, then(0.029)), IsEmpty());
  EXPECT_THAT(feed(pace, 100, then(0.031)), ElementsAre(HasSubstr("nvme-read moves 32.3 GB/s")));
}

TEST(DrivePace, OneThatMakesTheStepLateIsToldOnce) {
  Pace pace;
  feed(pace, 30, longer(LaneKind::kNvmeWrite, 0));
  EXPECT_THAT(
      feed(pace, 100, longer(LaneKind::kNvmeWrite, 0.5)),
      ElementsAre(HasSubstr("nvme-write was busy for 1.00 s, forecast 0.500 s: the drive")));
  EXPECT_THAT(feed(pace, 100, longer(LaneKind::kNvmeWrite, 2)),
              ElementsAre(HasSubstr("moves 0.4 GB/s while it is busy, before 1 GB/s")))
      << "it was slow before, and became slower";
}

/// Reads and writes are both a quarter as fast, and the step is late for it.
TEST(DrivePace, OneWhoseLanesBothBecomeSlowIsToldOnce) {
  Busy slow = kForecast;
  slow[LaneKind::kNvmeRead] *= 4;
  slow[LaneKind::kNvmeWrite] *= 4;
  Pace pace;
  feed(pace, 30, step(1, kForecast));
  EXPECT_THAT(
      feed(pace, 100, step(2.5, slow)),
      ElementsAre(HasSubstr("nvme-write was busy for 2.00 s, forecast 0.500 s: the drive")));
}

TEST(DrivePace, ALaneThatMovesNothingIsNoDrive) {
  const auto still = [](double busy_s) {
    StepRecord record = hidden(LaneKind::kNvmeRead, busy_s);
    record.nvme_read_bytes = 0;
    return record;
  };
  Pace pace;
  EXPECT_THAT(feed(pace, 30, still(0.1)), IsEmpty());
  EXPECT_THAT(feed(pace, 30, still(0.9)), IsEmpty());
}

/// Whatever happens: nothing is as fast as this.
plan::Rates endless_rates() {
  plan::Rates rates;
  rates.copy = rates.adam = rates.first_values = rates.sums = rates.device_sums = 1e18;
  rates.norms = 1e18;
  rates.nvme_read = rates.nvme_write = {1e18, 1e18};
  rates.flops = 1e21;
  rates.op_s = 1e-12;
  return rates;
}

class PacedRun : public testing::Test {
 protected:
  PacedRun() {
    job_.homes.offload_optimizer = schedule::OptimizerHome::kNvme;
    job_.train.steps = 12;
    job_.rates = endless_rates();
  }

  const TempFolder folder_;
  Job job_ = tiny_job(folder_, tiny_gpt());
};

constexpr const char* kLate = "more than the forecast";
constexpr const char* kSlow = "while it is busy, forecast";
constexpr const char* kUnjudged = "steps were not judged by their forecast";

/// Judged once: were it judged again, a step that takes twice as long by then would be told, too.
TEST_F(PacedRun, OneThatIsLateSaysSo) {
  job_.train.steps = 2 + kFewest;
  const std::string said = said_by(job_);
  EXPECT_EQ(occurrences(said, kLate), 1U);
  EXPECT_EQ(occurrences(said, kUnjudged), 0U);
}

/// The first two steps of a run are not like the others, and so are those beside an evaluation or a
/// checkpoint.
TEST_F(PacedRun, StepsThatAreUnlikeTheForecastAreNotJudgedAndItSaysThat) {
  const auto expect_unjudged = [](const Job& job, const char* steps) {
    const std::string said = said_by(job);
    EXPECT_EQ(occurrences(said, kLate), 0U);
    EXPECT_EQ(occurrences(said, kUnjudged), 1U);
    EXPECT_THAT(said, HasSubstr(steps));
  };
  job_.train.steps = 1;
  expect_unjudged(job_, "there were 0.");
  job_.train.steps = 2 + kFewest - 1;
  expect_unjudged(job_, "there were 4.");
  job_.train.steps = 12;
  Job saves = job_;
  saves.checkpoint.every = std::int64_t{2};
  expect_unjudged(saves, "there were 0.");
  Job evaluates = job_;
  evaluates.data.valid = evaluates.data.train;
  evaluates.eval.every = 2;
  expect_unjudged(evaluates, "there were 0.");
}

/// Then lanes take turns.
TEST_F(PacedRun, TheForecastOfOneThatRunsOpByOpIsOfThat) {
  job_.execution = Execution::kSerial;
  std::size_t forecasts = 0;
  job_.on_step = [&](const StepRecord& record) {
    ASSERT_TRUE(record.forecast);
    double busy = 0;
    for (const data::LaneShare& lane : record.forecast->lanes) busy += lane.busy;
    EXPECT_NEAR(busy, 1, 1e-9);
    ++forecasts;
  };
  said_by(job_);
  EXPECT_GT(forecasts, 0U);
}

/// Late updates are forecast, and steps before them are others.
TEST_F(PacedRun, TheForecastIsOfTheDelayedSteps) {
  job_.optimizer.update = schedule::Update::kDelayed;
  job_.optimizer.delayed_update_start = 3;
  std::vector<bool> forecast;
  job_.on_step = [&](const StepRecord& record) { forecast.push_back(record.forecast.has_value()); };
  said_by(job_);
  std::vector<bool> expected(12, true);
  std::fill_n(expected.begin(), 4, false);  // and the first late one, which applies nothing
  EXPECT_EQ(forecast, expected);
}

/// The compute lane takes so long by the forecast that nothing can be late.
TEST_F(PacedRun, ADriveThatIsSlowerThanItWasIsToldOnceWhereNothingWaitsForIt) {
  job_.rates->flops = 1;
  const std::string said = said_by(job_);
  EXPECT_EQ(occurrences(said, kLate), 0U);
  EXPECT_EQ(occurrences(said, kSlow), 1U);
}

/// The bytes of a step over the rate of the drive; and checks, which
/// go on beside other writes, have a time of their own.
TEST_F(PacedRun, TheForecastIsWhatTheRatesSay) {
  job_.rates->nvme_write = {1e6, 1e6};
  job_.rates->checks = 1e5;
  job_.rates->flops = 1e6;  // no share of a step comes near 1
  const auto busy_s = [&](nvme::Verify verify) {
    job_.aio.verify = verify;
    const Observed seen = observe(job_);
    const data::Forecast forecast = seen.records.back().forecast.value();
    const LaneShare& lane = forecast.lanes[schedule::lane_of(LaneKind::kNvmeWrite)];
    EXPECT_EQ(lane.lane, "nvme-write");
    EXPECT_EQ(forecast.seconds, seen.plan.forecast.seconds());
    const auto bytes = plan::moved(*seen.plan.programs.step, LaneKind::kNvmeWrite);
    return std::pair(lane.busy * forecast.seconds, static_cast<double>(bytes) / 1e6);
  };
  const auto [unchecked, seconds] = busy_s(nvme::Verify::kFalse);
  const double chunk_s = 48 * 1024 / 1e6;  // a step may end with one more or less on its way
  ASSERT_GT(seconds, 10 * chunk_s);
  EXPECT_NEAR(unchecked, seconds, 1.001 * chunk_s);
  EXPECT_GT(busy_s(nvme::Verify::kTrue).first, 1.5 * unchecked);
}

}  // namespace
}  // namespace sluice::train
