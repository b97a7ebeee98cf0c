// The same bits, however memory lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/blocks.h"
#include "engine/shape/kept.h"
#include "engine/tensor/allocator.h"
#include "engine/tensor/workspace.h"
#include "harness.h"

namespace sluice::model {
namespace {

using shape::BlockKind;
using tensor::OpScope;
using tensor::Workspace;

class Bits : public ::testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {
 protected:
  static void SetUpTestSuite() { tensor::install_allocator(); }
  const shape::Decoder d = decoder_named(std::get<0>(GetParam()));
  const at::ScalarType dtype = std::get<1>(GetParam());
};

// Everything a block's ops read and write, made outside of any op.
struct World {
  static constexpr std::int64_t kBatch = 2, kSeq = 29;

  World(const shape::Decoder& decoder, at::ScalarType dtype, Bytes past_page = 0)
      : d(decoder),
        embed(d, BlockKind::kEmbed, dtype, past_page),
        layer(d, BlockKind::kLayer, dtype, past_page),
        head(d, BlockKind::kHead, dtype, past_page) {
    const std::vector<std::int64_t> sizes{kBatch, kSeq, d.hidden};
    tokens = random_tokens({kBatch, kSeq}, d.vocab, 1);
    targets = random_tokens({kBatch, kSeq}, d.vocab, 2);
    positions = document_positions(kBatch, kSeq);
    for (at::Tensor* t : {&x, &y, &dx, &dy}) *t = poisoned(sizes, dtype, past_page);
  }

  const shape::Decoder d;
  BlockParams embed, layer, head;
  at::Tensor tokens, targets, positions, x, y, dx, dy;
  at::Tensor loss = unknown_number();
  std::int64_t mlp_chunk = 25;
};

constexpr std::int64_t kLossChunk = 70;

using Op = void (*)(World&);
constexpr Op kOps[] = {
    [](World& w) { embed_forward(w.d, w.embed, w.tokens, w.positions, w.x); },
    [](World& w) { layer_forward(w.d, w.layer, places_of(w.positions), w.x, w.mlp_chunk, w.y); },
    [](World& w) {
      head_train(w.d, w.head, w.y, w.targets, number(0.25), kLossChunk, {}, w.head, w.dy, w.loss);
    },
    [](World& w) {
      layer_backward(w.d, w.layer, places_of(w.positions), w.x, w.dy, w.mlp_chunk, w.layer, w.dx);
    },
    [](World& w) { embed_backward(w.d, w.tokens, w.positions, w.dx, w.embed); },
};

void expect_same(const World& a, const World& b) {
  EXPECT_EQ(a.loss.item<double>(), b.loss.item<double>());
  EXPECT_TRUE(same_bits(a.x, b.x));
  EXPECT_TRUE(same_bits(a.y, b.y));
  EXPECT_TRUE(same_bits(a.dx, b.dx));
  EXPECT_TRUE(same_bits(a.dy, b.dy));
  for (auto block : {&World::embed, &World::layer, &World::head}) {
    for (const auto& [role, gradient] : (a.*block).gradients()) {
      EXPECT_TRUE(same_bits(gradient, (b.*block).gradients().at(role)))
          << "gradient of role " << static_cast<int>(role);
      EXPECT_FALSE(gradient.isnan().any().item<bool>());
    }
  }
}

void run(World& world) {
  for (const Op op : kOps) op(world);
}

// Aligned memory full of NaN: what an op reads before it writes it would show.
class Poison {
 public:
  explicit Poison(Bytes n) : bytes_(n + 64, std::byte{0xff}) {}
  std::span<std::byte> memory() {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return {bytes_.data() + (round_up(at, 64) - at), bytes_.size() - 64};
  }

 private:
  std::vector<std::byte> bytes_;
};

// The layer keeps its forward in this buffer; what the op does not write stays NaN.
struct Keeper {
  Keeper(const shape::Decoder& d, at::ScalarType dtype)
      : compute(dtype == at::kFloat ? DType::kF32 : DType::kBf16),
        buffer(shape::kept_of(d, World::kBatch * World::kSeq, compute).bytes) {}
  KeptLayer views(const shape::Decoder& d) {
    return kept_views(d, World::kBatch * World::kSeq, compute, buffer.memory().data());
  }
  DType compute;
  Poison buffer;
};

TEST_P(Bits, ALayerThatKeepsItsForwardGivesThoseOfOneThatRunsItAgain) {
  for (const std::int64_t chunk :
       {std::int64_t{1}, std::int64_t{25}, World::kBatch * World::kSeq}) {
    SCOPED_TRACE(chunk);
    World again(d, dtype), keeps(d, dtype);
    again.mlp_chunk = keeps.mlp_chunk = chunk;
    run(again);
    Keeper keeper(d, dtype);
    kOps[0](keeps);
    layer_forward_keep(d, keeps.layer, places_of(keeps.positions), keeps.x, chunk, keeps.y,
                       keeper.views(d));
    kOps[2](keeps);
    layer_backward_kept(d, keeps.layer, places_of(keeps.positions), keeps.x, keeps.dy,
                        keeper.views(d), chunk, keeps.layer, keeps.dx);
    kOps[4](keeps);
    expect_same(keeps, again);
  }
}

TEST_P(Bits, AHeadThatKeepsItsLogitsGivesThoseOfOneThatMakesThemAgain) {
  World again(d, dtype), keeps(d, dtype);
  run(again);
  const DType compute = dtype == at::kFloat ? DType::kF32 : DType::kBf16;
  Poison buffer(shape::kept_logits_of(d, World::kBatch * World::kSeq, kLossChunk, compute).bytes);
  kOps[0](keeps);
  kOps[1](keeps);
  head_train(d, keeps.head, keeps.y, keeps.targets, number(0.25), kLossChunk,
             kept_logits_views(d, World::kBatch * World::kSeq, kLossChunk, compute,
                               buffer.memory().data()),
             keeps.head, keeps.dy, keeps.loss);
  kOps[3](keeps);
  kOps[4](keeps);
  expect_same(keeps, again);
}

TEST_P(Bits, AnMlpChunkOfMoreThanAllTokensIsAllTokens) {
  World all(d, dtype), more(d, dtype);
  all.mlp_chunk = World::kBatch * World::kSeq;
  more.mlp_chunk = std::int64_t{1} << 30;
  run(all);
  run(more);
  expect_same(all, more);
}

void run_in(Workspace& workspace, World& world) {
  for (const Op op : kOps) {
    OpScope scope(workspace, "op");
    op(world);
    scope.close();
  }
}

TEST_P(Bits, AreTheSameInEveryRepeat) {
  World a(d, dtype), b(d, dtype);
  run(a);
  run(b);
  expect_same(a, b);
}

// Of a program, every tensor begins on a multiple of 64 bytes (tensor::view sees to it), and every
// temporary of an op too.
TEST_P(Bits, AreTheSameAtEveryMultipleOf64Bytes) {
  World at_page(d, dtype);
  run(at_page);
  for (const Bytes past_page : {Bytes{64}, Bytes{64 * 31}, Bytes{64 * 63}}) {
    World elsewhere(d, dtype, past_page);
    run(elsewhere);
    expect_same(at_page, elsewhere);
  }
}

TEST_P(Bits, AreTheSameInAWorkspaceOfTheMeasuredSize) {
  World plain(d, dtype), measured(d, dtype), exact(d, dtype);
  run(plain);
  Workspace measuring = Workspace::measuring(1_GiB);
  run_in(measuring, measured);
  expect_same(plain, measured);
  const Bytes side = 2 * measuring.peak().side;
  Poison memory(measuring.peak().main + side);
  Workspace workspace(memory.memory(), side);
  run_in(workspace, exact);
  EXPECT_EQ(workspace.peak().main, measuring.peak().main);
  expect_same(plain, exact);
}

TEST_P(Bits, AnOpThatDoesNotFitFailsByNameAndMayBeRunAgain) {
  World plain(d, dtype), world(d, dtype);
  // Of documents the kernel's own memory would come from malloc (tensor::Stack).
  plain.positions = world.positions = plain_positions(World::kBatch, World::kSeq);
  run(plain);
  for (std::size_t i = 0; i < std::size(kOps); ++i) {
    Workspace measuring = Workspace::measuring(1_GiB);
    std::optional<OpScope> scope(std::in_place, measuring, "op");
    kOps[i](world);
    scope.reset();
    const Bytes need = measuring.peak().main;
    for (Bytes have : {need - 64, need / 2, Bytes{64}}) {
      if (need < 128) break;
      Poison memory(have + 64_KiB);
      Workspace small(memory.memory(), 64_KiB);
      OpScope in_small(small, "layer 7");
      try {
        kOps[i](world);
        ADD_FAILURE() << "op " << i << " fits " << have << " of " << need;
      } catch (const Error& e) {
        EXPECT_EQ(e.code, Errc::kBudget);
        EXPECT_THAT(e.what(), ::testing::HasSubstr("layer 7"));
      }
      in_small.close();  // throws if anything is left
    }
    kOps[i](world);
  }
  expect_same(plain, world);
}

INSTANTIATE_TEST_SUITE_P(Decoders, Bits,
                         ::testing::Combine(::testing::ValuesIn(decoder_names()),
                                            ::testing::Values(at::kFloat, at::kBFloat16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == at::kFloat ? "_fp32" : "_bf16");
                         });

}  // namespace
}  // namespace sluice::model
