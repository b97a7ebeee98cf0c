#include "engine/bench/memory_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cpu_adam/isa.h"
#include "engine/bench/adam_cases.h"
#include "engine/bench/copy_cases.h"
#include "engine/bench/memory_table.h"
#include "gpu/device.h"

namespace sluice::bench {
namespace {

using cpu_adam::Stores;
using testing::HasSubstr;

const MemoryEffort kLittle{.rounds = 3, .seconds = 0};

MemoryPoint point(const std::string& by, unsigned threads, bool roof = false) {
  return {.work = "update",
          .by = by,
          .threads = threads,
          .size = "1K",
          .parameters = 1000,
          .moved = 28'000,
          .roof = roof};
}

TEST(MeasureMemory, VisitsEveryCaseOnceARound) {
  std::map<std::string, int> passes;
  std::vector<MemoryCase> cases;
  for (const std::string by : {"a", "b", "c"}) {
    cases.push_back({point(by, 1), [&passes, by] { ++passes[by]; }});
  }
  Progress progress(Talk::kNone);
  const std::atomic<int> stop = 0;
  const auto runs = measure(cases, kLittle, 5, progress, stop);
  ASSERT_EQ(runs.size(), 9U);
  std::map<std::string, int> visits;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].repetition, static_cast<int>(i / 3));
    EXPECT_GT(runs[i].seconds, 0);
    ++visits[runs[i].point.by];
  }
  for (const auto& [by, n] : visits) EXPECT_EQ(n, 3) << by;
  // A pass that does not count, and one that does.
  for (const auto& [by, n] : passes) EXPECT_EQ(n, 6) << by;
}

TEST(MeasureMemory, EndsAtTheNextCaseWhenItIsToStop) {
  std::atomic<int> stop = 0;
  const std::vector<MemoryCase> cases(4, {point("a", 1), [&stop] { stop = 2; }});
  Progress progress(Talk::kNone);
  EXPECT_EQ(measure(cases, kLittle, 5, progress, stop).size(), 1U);
}

TEST(SummarizeMemory, TakesMediansAndTheFastestRoofOfTheSameBytes) {
  const std::vector<MemoryCase> cases = {{point("avx2", 2), {}},
                                         {point("cached", 2, true), {}},
                                         {point("streaming", 2, true), {}},
                                         {point("other threads", 1, true), {}},
                                         {point("never run", 2, true), {}}};
  std::vector<MemoryRun> runs;
  const auto add = [&](std::size_t i, double seconds) {
    runs.push_back({.point = cases[i].point, .seconds = seconds});
  };
  for (const double seconds : {4.0, 5.0, 9.0}) add(0, seconds);
  add(1, 4.5);
  add(2, 4);
  add(3, 1);
  const auto all = summarize(cases, runs);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].point.by, "avx2");
  EXPECT_EQ(all[0].repetitions, 3);
  EXPECT_EQ(all[0].seconds, 5);
  EXPECT_EQ(all[0].spread, 1);
  EXPECT_EQ(all[0].rate(), 5600);
  EXPECT_EQ(all[0].of_roof(), 0.8);
  EXPECT_EQ(all[2].of_roof(), 1);
  EXPECT_THAT(table(all), HasSubstr("80%"));
  // 5 s for 1000 parameters.
  EXPECT_THAT(verdict(all), HasSubstr("5000000.00 s for each billion, 80% of the roof"));
  EXPECT_THAT(verdict(all), HasSubstr("cpu_adam: {isa: avx2, stores: cached, threads: 2}"));
}

/// Every instruction set and number of threads at the size past the caches, and nowhere else.
TEST(AdamCases, AreEveryWayBesideARoof) {
  for (const DType type : {DType::kBf16, DType::kF32}) {
    const auto cases = adam_cases(
        {.most = 2'000'000, .type = type, .isas = cpu_adam::available_isas(), .threads = {1, 2}});
    std::map<std::string, int> ways;
    for (const MemoryCase& one : cases) {
      const MemoryPoint& p = one.point;
      EXPECT_EQ(p.size, "1M");
      EXPECT_EQ(p.parameters, 1'000'000 / kGrainElems * kGrainElems);
      const Bytes each = p.work == "norm" ? size_of(type) : type == DType::kF32 ? 32 : 28;
      EXPECT_EQ(p.moved, p.parameters * each);
      ++ways[p.work + " " + p.by + " " + name_of(p.stores) + " " + std::to_string(p.threads)];
      one.pass();
    }
    for (const auto& [way, n] : ways) EXPECT_EQ(n, 1) << way;
    for (const cpu_adam::Isa isa : cpu_adam::available_isas()) {
      for (const std::string threads : {"1", "2"}) {
        EXPECT_TRUE(ways.contains("update " + std::string(name_of(isa)) + " cached " + threads));
      }
    }
    for (const char* roof :
         {"update loop cached 1", "update loop streaming 2", "norm loop cached 2"}) {
      EXPECT_TRUE(ways.contains(roof)) << roof;
    }
  }
}

TEST(AdamCases, TakeWhatThereIsRoomFor) {
  const auto cases = adam_cases({.most = kGrainElems + 1,
                                 .type = DType::kBf16,
                                 .isas = {cpu_adam::Isa::kScalar},
                                 .threads = {1}});
  for (const MemoryCase& one : cases) {
    EXPECT_EQ(one.point.parameters, kGrainElems);
    one.pass();
  }
}

TEST(CopyCases, AreBothWaysAndTogetherBesideLoops) {
  std::map<std::string, Bytes> moved;
  for (const MemoryCase& one : copy_cases(32_MiB - 1)) {
    EXPECT_EQ(one.point.size, "1MiB");
    moved[one.point.by] = std::max(moved[one.point.by], one.point.moved);
    one.pass();
  }
  const bool unified = gpu::device().unified;
  // Read and written by the same memory, or over a link.
  const Bytes each = unified ? 2_MiB : 1_MiB;
  EXPECT_EQ(moved["h2d"], each);
  EXPECT_EQ(moved["d2h"], each);
  EXPECT_EQ(moved["both"], 2 * each);
  EXPECT_EQ(moved["loop"], unified ? 4_MiB : 0);
}

}  // namespace
}  // namespace sluice::bench
