#include "engine/bench/compare.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/errors.h"

namespace sluice::bench {
namespace {

Measured measured(double read, double write, double cpu, Traffic traffic = Traffic::kMixed) {
  Measured m;
  m.point.traffic = traffic;
  m.read_rate = read;
  m.write_rate = write;
  m.cpu_s_per_gb = cpu;
  return m;
}

TEST(Compare, IsTheMedianOfTheRatiosOfPairs) {
  // Ours 1.5, 1.6, 1.2; fio's 2.0, 1.5, 1.0: the middle ones are not of one pair.
  const std::vector<Pair> pairs = {{measured(0.7e9, 0.8e9, 0.1), measured(1e9, 1e9, 0.4)},
                                   {measured(0.8e9, 0.8e9, 0.3), measured(1e9, 0.5e9, 0.5)},
                                   {measured(0.6e9, 0.6e9, 0.2), measured(0.5e9, 0.5e9, 0.3)}};
  const Comparison all = compare(pairs);
  EXPECT_EQ(all.traffic, Traffic::kMixed);
  EXPECT_EQ(all.pairs, 3U);
  EXPECT_DOUBLE_EQ(all.ours, 1.5e9);
  EXPECT_DOUBLE_EQ(all.fio, 1.5e9);
  EXPECT_DOUBLE_EQ(all.ratio, 1.6 / 1.5);
  EXPECT_DOUBLE_EQ(all.lowest, 0.75);
  EXPECT_DOUBLE_EQ(all.highest, 1.2);
  EXPECT_DOUBLE_EQ(all.ours_cpu, 0.2);
  EXPECT_DOUBLE_EQ(all.fio_cpu, 0.4);
}

TEST(Compare, OfAnEvenNumberTakesTheMeanOfTheMiddle) {
  const std::vector<Pair> pairs = {
      {measured(1e9, 0, 0, Traffic::kRead), measured(2e9, 0, 0, Traffic::kRead)},
      {measured(2e9, 0, 0, Traffic::kRead), measured(4e9, 0, 0, Traffic::kRead)}};
  const Comparison all = compare(pairs);
  EXPECT_DOUBLE_EQ(all.ours, 1.5e9);
  EXPECT_DOUBLE_EQ(all.fio, 3e9);
}

TEST(Compare, SaysItInOneLine) {
  Comparison mixed;
  mixed.traffic = Traffic::kMixed;
  mixed.pairs = 5;
  mixed.ours = 1.52e9;
  mixed.fio = 1.55e9;
  mixed.ratio = 0.97;
  mixed.lowest = 0.94;
  mixed.highest = 1.01;
  EXPECT_EQ(line_of(mixed),
            "mixed: 1.52 of fio's 1.55 GB/s: 0.97 (median of 5 pairs, 0.94 to 1.01)");
}

TEST(Compare, RefusesWhatCannotBeCompared) {
  const Measured read = measured(1e9, 0, 0, Traffic::kRead);
  test::expect_error(Errc::kLogic, {"no pairs"}, [] { compare({}); });
  const std::vector<Pair> mixed_up = {{read, measured(1, 1, 0)}};
  test::expect_error(Errc::kLogic, {"different traffic"}, [&] { compare(mixed_up); });
  const std::vector<Pair> nothing = {{read, measured(0, 0, 0, Traffic::kRead)}};
  test::expect_error(Errc::kLogic, {"moved nothing"}, [&] { compare(nothing); });
}

}  // namespace
}  // namespace sluice::bench
