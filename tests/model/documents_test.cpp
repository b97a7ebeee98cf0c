// Documents of any lengths fit the workspace that the longest were measured in.
#include "engine/model/documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "engine/base/units.h"
#include "engine/model/blocks.h"
#include "engine/tensor/allocator.h"
#include "engine/tensor/workspace.h"
#include "harness.h"

namespace sluice::model {
namespace {

using shape::BlockKind;
using tensor::OpScope;
using tensor::Workspace;

TEST(Documents, LieBetweenTheirEnds) {
  const std::vector<std::int32_t> ends{0, 2, 3, 5, 7, 10, 10, 10};
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> found;
  for (const auto& [row, begin, tokens] : documents_of(ends, 5)) {
    found.emplace_back(row, begin, tokens);
  }
  const decltype(found) expected{{0, 0, 2}, {0, 2, 1}, {0, 3, 2}, {1, 0, 2}, {1, 2, 3}};
  EXPECT_EQ(found, expected);
}

TEST(Documents, GoTogetherAsFarAsTheirScratchIsNoMoreThanTheirTokens) {
  for (const std::int64_t tokens : {1, 100, 1024, 1030}) {
    for (const std::int64_t length : {1, 7, 128, 512, 2000}) {
      std::vector<Document> documents;
      for (std::int64_t at = 0; at < tokens; at += length) {
        documents.push_back({0, at, std::min(length, tokens - at)});
      }
      std::size_t next = 0;
      std::int64_t begin = 0;
      for (const Group& group : groups_of(documents, tokens)) {
        EXPECT_EQ(group.first, next);
        EXPECT_EQ(group.begin, begin);
        EXPECT_TRUE(group.count == 1 ||
                    static_cast<std::int64_t>(group.count) * kDocumentScratch <= tokens);
        for (std::size_t i = 0; i < group.count; ++i) begin += documents[next++].tokens;
        EXPECT_EQ(group.begin + group.tokens, begin);
      }
      EXPECT_EQ(next, documents.size());
      EXPECT_EQ(begin, tokens);
    }
  }
}

struct Space {
  const char* name;
  std::int64_t batch, window, intermediate;
  at::ScalarType dtype;
};

class DocumentSpace : public ::testing::TestWithParam<Space> {
 protected:
  static constexpr std::int64_t kSeq = 512;
  static constexpr std::int64_t kMlpChunk = 1 << 30;  // all tokens

  DocumentSpace() {
    tensor::install_allocator();
    d_.window = GetParam().window;
    d_.heads = 14;
    d_.kv_heads = 2;
    d_.head_dim = 64;
    d_.intermediate = GetParam().intermediate;
  }

  /// The most that a layer takes with these documents.
  tensor::Usage used(Workspace& workspace, const at::Tensor& positions) {
    const std::vector<std::int64_t> sizes{GetParam().batch, kSeq, d_.hidden};
    BlockParams params(d_, BlockKind::kLayer, GetParam().dtype);
    const at::Tensor x = random(sizes, GetParam().dtype, 1),
                     dy = random(sizes, GetParam().dtype, 2);
    const at::Tensor out = poisoned(sizes, GetParam().dtype),
                     dx = poisoned(sizes, GetParam().dtype);
    OpScope forward(workspace, "forward");
    layer_forward(d_, params, places_of(positions), x, kMlpChunk, out);
    forward.close();
    OpScope backward(workspace, "backward");
    layer_backward(d_, params, places_of(positions), x, dy, kMlpChunk, params, dx);
    backward.close();
    return workspace.peak();
  }
  tensor::Usage measured(const at::Tensor& positions) {
    Workspace workspace = Workspace::measuring(1_GiB);
    return used(workspace, positions);
  }
  /// Each row cut at random places, of `documents` on average.
  at::Tensor random_positions(std::mt19937& random, int documents) const {
    at::Tensor positions = plain_positions(GetParam().batch, kSeq);
    for (std::int64_t row = 0; row < GetParam().batch; ++row) {
      std::int64_t begin = 0;
      for (std::int64_t i = 0; i < kSeq; ++i) {
        if (static_cast<std::int64_t>(random() % kSeq) < documents) begin = i;
        positions[row][i] = i - begin;
      }
    }
    return positions;
  }

  shape::Decoder d_ = decoder_named("normed");
};

TEST_P(DocumentSpace, OfTheLongestIsEnoughForAll) {
  const at::Tensor whole = plain_positions(GetParam().batch, kSeq);
  at::Tensor several = whole.clone();
  several[GetParam().batch - 1][kSeq - 1] = 0;
  const Bytes most = std::max(measured(whole).main, measured(several).main);
  std::mt19937 random(5);
  for (const int documents : {1, 1, 1, 2, 2, 2, 3, 5, 10, 30, 100}) {
    const tensor::Usage usage = measured(random_positions(random, documents));
    EXPECT_LE(usage.main, most) << documents;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DocumentSpace,
                         ::testing::Values(Space{"one_row", 1, 0, 8, at::kFloat},
                                           Space{"one_row_bf16", 1, 0, 8, at::kBFloat16},
                                           Space{"large_mlp_bf16", 1, 0, 4864, at::kBFloat16},
                                           Space{"rows_bf16", 3, 0, 1200, at::kBFloat16},
                                           Space{"window", 2, 20, 300, at::kFloat},
                                           Space{"window_bf16", 2, 130, 1200, at::kBFloat16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::model
