#include "engine/tensor/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "engine/base/error.h"

namespace sluice::tensor {
namespace {

TEST(Arena, TakesTheSmallestGapThatFitsAndTheEndOnlyWhenNoneDoes) {
  Arena arena(1_MiB);
  const auto a = arena.take(1024), keep1 = arena.take(64);
  const auto b = arena.take(256), keep2 = arena.take(64);
  arena.give_back(*a);
  arena.give_back(*b);
  EXPECT_EQ(arena.take(200), b);
  EXPECT_EQ(arena.take(1024), a);
  EXPECT_EQ(arena.take(64), *keep2 + 64);
  arena.give_back(*keep1);
}

TEST(Arena, NeighbouringGapsBecomeOneAndTheLastOneGoesBackToTheEnd) {
  Arena arena(4096);
  const auto a = arena.take(64), b = arena.take(64), c = arena.take(64);
  arena.give_back(*a);
  arena.give_back(*c);
  arena.give_back(*b);
  EXPECT_EQ(arena.pieces(), 0u);
  EXPECT_EQ(arena.free(), 4096u);
  EXPECT_EQ(arena.take(4096), 0u);
}

TEST(Arena, GivingBackWhatIsNotTakenIsAnError) {
  Arena arena(4096);
  const auto a = arena.take(100);
  arena.give_back(*a);
  EXPECT_THROW(arena.give_back(*a), Error);
}

// Replays random programs of requests in arenas of different capacity.
struct Request {
  Bytes size;         // 0: give back
  std::size_t which;  // the request that is given back
};

std::vector<Request> random_requests(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  std::vector<std::size_t> live;
  for (std::size_t i = 0; i < 400; ++i) {
    if (!live.empty() && random() % 2 == 0) {
      const std::size_t at = random() % live.size();
      requests.push_back({0, live[at]});
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      live.push_back(i);
      requests.push_back({1 + random() % 5000, i});
    }
  }
  return requests;
}

std::vector<std::optional<Bytes>> offsets_in(Arena& arena, const std::vector<Request>& requests,
                                             Arena::Fit fit = Arena::Fit::kBest) {
  std::map<std::size_t, Bytes> taken;
  std::vector<std::optional<Bytes>> offsets;
  for (const Request& request : requests) {
    if (request.size == 0) {
      arena.give_back(taken.at(request.which));
      continue;
    }
    offsets.push_back(arena.take(request.size, fit));
    if (!offsets.back()) break;
    taken[request.which] = *offsets.back();
  }
  return offsets;
}

TEST(Arena, TheSameRequestsGetTheSameOffsetsInAnArenaOfExactlyTheirPeak) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto requests = random_requests(seed);
    Arena large(1_GiB);
    const auto expected = offsets_in(large, requests);
    Arena exact(large.peak());
    EXPECT_EQ(offsets_in(exact, requests), expected) << "seed " << seed;
    Arena short_by_one_step(large.peak() - Arena::kStep);
    EXPECT_EQ(offsets_in(short_by_one_step, requests).back(), std::nullopt) << "seed " << seed;
  }
}

TEST(Arena, AtTheEndSmallerRequestsNeverNeedMore) {
  int best_needs_more = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto largest = random_requests(seed);
    auto smaller = largest;
    std::mt19937 random(seed + 1000);
    for (Request& request : smaller) {
      if (request.size > 1) request.size -= random() % request.size;
    }
    const auto peak = [](const std::vector<Request>& requests, Arena::Fit fit) {
      Arena arena(1_GiB);
      offsets_in(arena, requests, fit);
      return arena.peak();
    };
    EXPECT_LE(peak(smaller, Arena::Fit::kEnd), peak(largest, Arena::Fit::kEnd)) << seed;
    // A few bytes less are enough to upset best fit: that is what kEnd is for.
    auto slightly = largest;
    for (Request& request : slightly) {
      if (request.size > 300) request.size -= random() % 300;
    }
    const bool more = peak(slightly, Arena::Fit::kBest) > peak(largest, Arena::Fit::kBest);
    best_needs_more += more ? 1 : 0;
    EXPECT_LE(peak(slightly, Arena::Fit::kEnd), peak(largest, Arena::Fit::kEnd)) << seed;
  }
  EXPECT_GT(best_needs_more, 0);
}

TEST(Arena, PiecesNeverOverlap) {
  const auto requests = random_requests(7);
  Arena arena(1_GiB);
  std::map<Bytes, Bytes> live;
  std::map<std::size_t, Bytes> taken;
  for (const Request& request : requests) {
    if (request.size == 0) {
      live.erase(taken.at(request.which));
      arena.give_back(taken.at(request.which));
      continue;
    }
    const Bytes at = *arena.take(request.size);
    const auto next = live.lower_bound(at);
    if (next != live.end()) {
      ASSERT_LE(at + request.size, next->first);
    }
    if (next != live.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second, at);
    }
    live[at] = request.size;
    taken[request.which] = at;
  }
}

}  // namespace
}  // namespace sluice::tensor
