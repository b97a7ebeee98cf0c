#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/compute/model_ops.h"
#include "engine/schedule/batch.h"
#include "gpu/device.h"
#include "gpu/stream.h"
#include "tests/schedule/placements.h"
#include "tests/support/errors.h"

namespace sluice::compute {
namespace {

using schedule::OpId;

constexpr Bytes kBf16 = 2;

/// What a run of the tiny model measures: in bf16, two rows of 16 tokens, hidden 64.
class MeasureTest : public ::testing::Test {
 protected:
  static constexpr Bytes kTokens = 2 * 16, kHidden = 64, kInner = 128;

  train::Measured measure(bool keeps, train::Wanted wanted = train::Wanted::kTimesToo,
                          Bytes most = 1_GiB) {
    testing::Placement p;
    p.model = testing::TinyModel::kLlama;
    p.param = keeps ? schedule::ParamHome::kNone : schedule::ParamHome::kCpu;  // then they stream
    p.keeps_logits = keeps;
    setup_ = testing::setup_of(p);
    if (keeps) setup_.homes.recompute = schedule::Recompute::kAuto;
    setup_.logits = keeps ? 3 * kTokens * 128 * kBf16 : 0;
    const train::Numerics numerics{.threads = 2, .loss_chunk = 128, .mlp_chunk = kTokens};
    gpu::Stream stream("test");
    return ModelOps(setup_, numerics).measure(stream, most, wanted);
  }

  schedule::Setup setup_;
};

TEST_F(MeasureTest, TimesEveryOpThatARunMayHave) {
  const auto timed = [this](bool keeps) {
    std::set<OpId> ids;
    for (const auto& [id, seconds] : measure(keeps).seconds) {
      EXPECT_GT(seconds, 0);
      ids.insert(id);
    }
    return ids;
  };
  const std::set<OpId> streamed{OpId::kEmbedForward,  OpId::kEmbedBackward, OpId::kLayerForward,
                                OpId::kLayerBackward, OpId::kHeadTrain,     OpId::kHeadLoss};
  EXPECT_EQ(timed(/*keeps=*/false), streamed);
  std::set<OpId> all = streamed;
  all.insert({OpId::kLayerForwardKeep, OpId::kLayerBackwardKept, OpId::kHeadTrainKeep});
  EXPECT_EQ(timed(/*keeps=*/true), all);
}

TEST_F(MeasureTest, CountsWhatAnOpReadsAndWrites) {
  const std::map<OpId, Bytes> bytes = measure(/*keeps=*/true).bytes;
  const Bytes weights = setup_.segment_elems(1) * kBf16;  // of a layer, in whole grains
  const Bytes activation = kTokens * kHidden * kBf16;
  const Bytes batch = schedule::batch_bytes(kTokens);
  EXPECT_EQ(bytes.at(OpId::kLayerForward), weights + 2 * activation + 2 * batch);
  EXPECT_EQ(bytes.at(OpId::kLayerBackward), 2 * weights + 3 * activation + 2 * batch);
  EXPECT_EQ(bytes.at(OpId::kHeadTrainKeep) - bytes.at(OpId::kHeadTrain), setup_.logits);
}

TEST_F(MeasureTest, FindsTheMostThatAnyOpTakesBesideItsBuffers) {
  const train::WorkspaceUse used = measure(/*keeps=*/false).workspace;
  // A layer's backward makes gate, up, and their product again, and their gradients.
  EXPECT_GE(used.main, 5 * kTokens * kInner * kBf16);
  EXPECT_EQ(used.spilled, 0U);
}

TEST_F(MeasureTest, FindsTheSameWhereNothingIsTimed) {
  for (const bool keeps : {false, true}) {
    const train::Measured all = measure(keeps);
    const train::Measured some = measure(keeps, train::Wanted::kWorkspace);
    EXPECT_TRUE(some.seconds.empty());
    EXPECT_EQ(some.bytes, all.bytes);
    EXPECT_EQ(some.workspace.main, all.workspace.main);
    EXPECT_EQ(some.workspace.spilled, all.workspace.spilled);
  }
}

TEST_F(MeasureTest, TakesOfADeviceNoMoreThanItMay) {
  if (gpu::device().unified) GTEST_SKIP() << "the device is the host, of which it takes addresses";
  test::expect_error(Errc::kBudget, {"of its workspace", "tiers.gpu.limit"},
                     [this] { measure(/*keeps=*/false, train::Wanted::kTimesToo, 4_KiB); });
}

}  // namespace
}  // namespace sluice::compute
