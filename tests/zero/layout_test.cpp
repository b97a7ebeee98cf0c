#include "engine/zero/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "engine/base/units.h"
#include "engine/shape/presets.h"
#include "tests/zero/random_segment.h"

namespace sluice::zero {
namespace {

TEST(Layout, PutsEveryTensorOnItsAlignmentInOrderAndWithoutOverlap) {
  EXPECT_TRUE(rc::check([] {
    const shape::Segment segment = random_segment();
    const Layout layout = make_layout(segment);
    RC_ASSERT(layout.tensors.size() == segment.tensors.size());
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
      const Placed& p = layout.tensors[i];
      RC_ASSERT(p.tensor == static_cast<int>(i));
      RC_ASSERT(p.numel == segment.tensors[i].numel());
      RC_ASSERT(p.offset_elems % kTensorAlignElems == 0);
      RC_ASSERT(p.offset_elems >= end);
      RC_ASSERT(p.offset_elems - end < kTensorAlignElems);  // no waste either
      end = p.end();
    }
    RC_ASSERT(layout.elems % kGrainElems == 0);
    RC_ASSERT(layout.elems >= end);
    RC_ASSERT(layout.elems - end < kGrainElems + kTensorAlignElems);
  }));
}

TEST(Layout, OfAKnownSegment) {
  shape::Segment s{shape::SegmentKind::kFinalNorm, -1, {}};
  s.tensors.push_back({shape::Role::kFinalNormGain, "gain", {129}});
  s.tensors.push_back({shape::Role::kFinalNormBias, "bias", {4096}});
  const Layout layout = make_layout(s);
  EXPECT_EQ(layout.tensors[1].offset_elems, 256U);
  EXPECT_EQ(layout.elems, 8192U);
}

TEST(Layout, WastesLittleOnARealModel) {
  const shape::Model m = shape::make_model(shape::find_preset("gpt2-124m"));
  std::uint64_t elems = 0;
  for (const shape::Segment& s : m.segments) elems += make_layout(s).elems;
  EXPECT_GE(elems, m.parameters());
  EXPECT_LT(elems, m.parameters() + m.segments.size() * kGrainElems * 2);
}

}  // namespace
}  // namespace sluice::zero
