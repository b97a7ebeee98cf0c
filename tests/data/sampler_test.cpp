#include "engine/data/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/support/errors.h"

namespace sluice::data {
namespace {

using test::expect_error;
using Indices = std::vector<std::int64_t>;

Indices epoch_of(std::int64_t samples, std::uint64_t seed, std::uint64_t epoch,
                 Order order = Order::kShuffled) {
  const Sampler sampler(samples, seed, order);
  Indices seen(static_cast<std::size_t>(samples));
  const auto first = epoch * static_cast<std::uint64_t>(samples);
  for (std::uint64_t i = 0; i < seen.size(); ++i) seen[i] = sampler.at(first + i);
  return seen;
}

Indices identity(std::int64_t samples) {
  Indices all(static_cast<std::size_t>(samples));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(Sampler, EveryEpochVisitsEverySampleOnce) {
  EXPECT_TRUE(rc::check([] {
    const auto samples = *rc::gen::inRange<std::int64_t>(1, 3000);
    Indices seen = epoch_of(samples, *rc::gen::arbitrary<std::uint64_t>(),
                            *rc::gen::inRange<std::uint64_t>(0, 1'000'000));
    std::ranges::sort(seen);
    RC_ASSERT(seen == identity(samples));
  }));
}

TEST(Sampler, EverySmallCountIsAPermutationToo) {
  for (std::int64_t samples = 1; samples <= 70; ++samples) {
    Indices seen = epoch_of(samples, 1337, 3);
    std::ranges::sort(seen);
    EXPECT_EQ(seen, identity(samples)) << samples;
  }
}

TEST(Sampler, OrderDependsOnSeedAndEpoch) {
  const Indices order = epoch_of(1000, 1, 0);
  EXPECT_NE(order, identity(1000));
  EXPECT_NE(order, epoch_of(1000, 1, 1));
  EXPECT_NE(order, epoch_of(1000, 2, 0));
  EXPECT_NE(epoch_of(1000, 1, 1), epoch_of(1000, 2, 0));
  EXPECT_EQ(order, epoch_of(1000, 1, 0));
}

/// In a random permutation a place keeps its index once on average and each index is equally likely
/// at each place: over many epochs the mean index at every place is near the middle.
TEST(Sampler, ShuffleLooksLikeOne) {
  constexpr std::int64_t kSamples = 100;
  constexpr int kEpochs = 2000;
  std::vector<double> sums(kSamples, 0.0);
  int fixed = 0;
  int neighbours = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Indices order = epoch_of(kSamples, 7, epoch);
    for (std::size_t i = 0; i < order.size(); ++i) {
      sums[i] += static_cast<double>(order[i]);
      fixed += order[i] == static_cast<std::int64_t>(i) ? 1 : 0;
      neighbours += i > 0 && order[i] == order[i - 1] + 1 ? 1 : 0;
    }
  }
  EXPECT_NEAR(static_cast<double>(fixed) / kEpochs, 1.0, 0.15);
  EXPECT_NEAR(static_cast<double>(neighbours) / kEpochs, 1.0, 0.15);
  // One place's mean has a standard deviation of 28.9 / sqrt(2000) = 0.65.
  for (const double sum : sums) EXPECT_NEAR(sum / kEpochs, 49.5, 5 * 0.65);
}

TEST(Sampler, AllOrdersOfThreeOccurAboutEquallyOften) {
  std::vector<int> count(27, 0);
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
    const Indices o = epoch_of(3, 11, epoch);
    ++count[static_cast<std::size_t>(o[0] * 9 + o[1] * 3 + o[2])];
  }
  for (const int n : count) {
    EXPECT_TRUE(n == 0 || (n > 700 && n < 1300)) << n;
  }
  EXPECT_EQ(std::ranges::count_if(count, [](int n) { return n > 0; }), 6);
}

TEST(Sampler, SequentialStartsAgainEveryEpoch) {
  EXPECT_EQ(epoch_of(5, 99, 0, Order::kSequential), identity(5));
  EXPECT_EQ(epoch_of(5, 99, 3, Order::kSequential), identity(5));
  EXPECT_EQ(Sampler(5, 99, Order::kSequential).at(7), 2);
  EXPECT_EQ(Sampler(5, 99, Order::kSequential).epoch(14), 2U);
}

TEST(Sampler, HugeCountsCostNothing) {
  constexpr std::int64_t kSamples = (std::int64_t{1} << 62) + 12345;
  const Sampler sampler(kSamples, 5, Order::kShuffled);
  const std::int64_t a = sampler.at(0);
  const std::int64_t b = sampler.at(1);
  EXPECT_NE(a, b);
  EXPECT_GE(a, 0);
  EXPECT_LT(a, kSamples);
}

/// A run that is resumed by a later version must go on in the same order.
TEST(Sampler, OrderIsTheSameForEver) {
  EXPECT_EQ(epoch_of(10, 1337, 0), (Indices{0, 1, 4, 5, 9, 6, 3, 2, 7, 8}));
  EXPECT_EQ(epoch_of(10, 1337, 1), (Indices{6, 5, 8, 7, 3, 1, 4, 2, 9, 0}));
}

TEST(Sampler, NoSamplesIsRefused) {
  expect_error(Errc::kLogic, {"0 samples"}, [] { Sampler(0, 1, Order::kShuffled); });
}

}  // namespace
}  // namespace sluice::data
