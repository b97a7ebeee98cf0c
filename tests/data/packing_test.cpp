#include "engine/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

namespace sluice::data {
namespace {

using ::testing::ElementsAre;

std::vector<Piece> pieces_of(const std::vector<int>& places) {
  std::vector<Piece> pieces;
  for (const int n : places) pieces.push_back({0, n, 1});
  return pieces;
}

std::vector<std::vector<std::uint32_t>> samples_of(const Packing& packing) {
  std::vector<std::vector<std::uint32_t>> samples;
  for (std::int64_t k = 0; k < packing.samples(); ++k) {
    const auto sample = packing.sample(k);
    samples.emplace_back(sample.begin(), sample.end());
  }
  return samples;
}

TEST(Packing, EachPieceGoesWhereLeastRoomIsLeftOver) {
  // Longest first: 7 and 6 begin samples, 4 fits the second exactly, 3 the first; 2 and 1 are left.
  EXPECT_THAT(samples_of(pack(pieces_of({6, 3, 7, 4, 2, 1}), 10)),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2), ElementsAre(4, 5)));
}

TEST(Packing, SamplesAndTheirPiecesKeepTheOrderOfTheFiles) {
  EXPECT_THAT(samples_of(pack(pieces_of({1, 5, 5, 4, 9}), 10)),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 2), ElementsAre(3)));
}

TEST(Packing, EveryPieceIsInOneSampleAndNoSampleIsTooFull) {
  EXPECT_TRUE(rc::check([] {
    const auto seq_len = *rc::gen::inRange(1, 40);
    const auto places = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, seq_len + 1));
    const std::vector<Piece> pieces = pieces_of(places);
    const Packing packing = pack(pieces, seq_len);
    std::vector<int> seen(pieces.size());
    std::vector<int> full;
    for (const auto& sample : samples_of(packing)) {
      RC_ASSERT(!sample.empty());
      int sum = 0;
      for (const std::uint32_t i : sample) sum += places[i], ++seen[i];
      RC_ASSERT(sum <= seq_len);
      full.push_back(sum);
    }
    RC_ASSERT(std::ranges::all_of(seen, [](int n) { return n == 1; }));
    // What any-fit packings promise: no two samples would go into one, so all but one are half
    // full.
    std::ranges::sort(full);
    if (full.size() > 1) RC_ASSERT(full[0] + full[1] > seq_len);
  }));
}

TEST(Packing, OneEachKeepsThemApart) {
  EXPECT_THAT(samples_of(one_each(pieces_of({1, 2}))), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

}  // namespace
}  // namespace sluice::data
