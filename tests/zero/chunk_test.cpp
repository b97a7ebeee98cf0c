#include "engine/zero/chunk.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

#include "tests/support/errors.h"
#include "tests/zero/random_segment.h"

namespace sluice::zero {
namespace {

TEST(ChunkElems, AreWholeGrainsOfTwelveBytesAnElement) {
  EXPECT_EQ(chunk_elems(std::nullopt), 682U * kGrainElems);
  EXPECT_EQ(chunk_elems(48_KiB), kGrainElems);
  EXPECT_EQ(chunk_elems(96_KiB - 1), kGrainElems);
  EXPECT_EQ(chunk_elems(96_KiB), 2 * kGrainElems);
  EXPECT_EQ(chunk_elems(~Bytes{0}) % kGrainElems, 0U);
}

TEST(ChunkElems, BelowAGrainAreRefusedWithTheMinimum) {
  test::expect_error(Errc::kConfig, {"zero_optimization.sub_group_size", "48KiB"},
                     [] { chunk_elems(48_KiB - 1); });
}

TEST(Chunks, CoverTheSegmentOnceInOrder) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t segment = *rc::gen::inRange<std::uint64_t>(0, 500) * kGrainElems;
    const std::uint64_t size = *rc::gen::inRange<std::uint64_t>(1, 600) * kGrainElems;
    std::uint64_t at = 0;
    for (const Chunk& c : make_chunks(segment, size)) {
      RC_ASSERT(c.first_elem == at);
      RC_ASSERT(c.elems > 0U);
      RC_ASSERT(c.elems <= size);
      RC_ASSERT(c.elems % kGrainElems == 0U);
      at += c.elems;
      RC_ASSERT(c.elems == size || at == segment);  // only the last is shorter
    }
    RC_ASSERT(at == segment);
  }));
}

TEST(Chunks, OfPartsOfAGrainAreALogicError) {
  EXPECT_THROW(make_chunks(kGrainElems + 1, kGrainElems), Error);
  EXPECT_THROW(make_chunks(kGrainElems, kGrainElems / 2), Error);
  EXPECT_THROW(make_chunks(kGrainElems, 0), Error);
}

// The slow way to say what an element is: look through the layout.
Run element(const shape::Segment& segment, const Layout& layout, std::uint64_t at) {
  for (const Placed& p : layout.tensors) {
    if (at < p.offset_elems || at >= p.end()) continue;
    return {at, 1, segment.tensors[static_cast<std::size_t>(p.tensor)].shape.size() >= 2, p.tensor};
  }
  return {at, 1, false, -1};
}

TEST(Runs, CoverAChunkAndSayWhatEveryElementIs) {
  EXPECT_TRUE(rc::check([] {
    const shape::Segment segment = random_segment();
    const Layout layout = make_layout(segment);
    const std::uint64_t size = *rc::gen::inRange<std::uint64_t>(1, 20) * kGrainElems;
    for (const Chunk& chunk : make_chunks(layout.elems, size)) {
      std::uint64_t at = chunk.first_elem;
      int before = -2;
      for (const zero::Run& r : runs(segment, layout, chunk)) {
        RC_ASSERT(r.first_elem == at);
        RC_ASSERT(r.elems > 0U);
        RC_ASSERT(r.tensor != before);  // maximal
        before = r.tensor;
        for (const std::uint64_t probe : {r.first_elem, r.first_elem + r.elems - 1}) {
          RC_ASSERT(element(segment, layout, probe) == (zero::Run{probe, 1, r.decayed, r.tensor}));
        }
        at += r.elems;
      }
      RC_ASSERT(at == chunk.first_elem + chunk.elems);
    }
  }));
}

TEST(Runs, SeparateMatricesGainsAndPadding) {
  shape::Segment s{shape::SegmentKind::kLayer, 0, {}};
  s.tensors.push_back({shape::Role::kAttentionNormGain, "gain", {100}});
  s.tensors.push_back({shape::Role::kUpWeight, "weight", {64, 100}});
  const Layout layout = make_layout(s);
  EXPECT_EQ(
      runs(s, layout, {0, 4096}),
      (std::vector<zero::Run>{{0, 100, false, 0}, {100, 28, false, -1}, {128, 3968, true, 1}}));
  EXPECT_EQ(runs(s, layout, {4096, 4096}),
            (std::vector<zero::Run>{{4096, 2432, true, 1}, {6528, 1664, false, -1}}));
  EXPECT_THROW(runs(s, layout, {4096, 8192}), Error);
}

}  // namespace
}  // namespace sluice::zero
