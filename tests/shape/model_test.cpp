#include "engine/shape/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/shape/family.h"
#include "engine/shape/kept.h"
#include "engine/shape/presets.h"
#include "tests/support/errors.h"

namespace sluice::shape {
namespace {

using Shape = std::vector<std::int64_t>;

Decoder small(std::string_view family) {
  Decoder d = find_family(family).base;
  d.vocab = 512;
  d.hidden = 64;
  d.layers = 2;
  d.heads = 4;
  d.kv_heads = d.fused_qkv ? 4 : 2;
  d.head_dim = 16;
  d.intermediate = 176;
  d.max_positions = 256;
  return d;
}

const TensorSpec& tensor(const Model& m, std::string_view name) {
  for (const Segment& s : m.segments) {
    for (const TensorSpec& t : s.tensors) {
      if (t.name == name) return t;
    }
  }
  throw Error(Errc::kLogic, "no tensor " + std::string(name));
}

void expect_refused(const Decoder& d, const std::vector<std::string>& words) {
  test::expect_error(Errc::kConfig, words, [&] { make_model(d); });
}

TEST(Model, CutsGpt2IntoEmbeddingPositionsLayersAndNorm) {
  Decoder d = small("gpt2");
  d.tied_embeddings = true;
  const Model m = make_model(d);
  std::vector<std::string> names;
  for (const Segment& s : m.segments) names.push_back(s.name());
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "positions", "layer 0", "layer 1",
                                             "final norm"}));
  ASSERT_EQ(m.blocks.size(), 4U);
  EXPECT_EQ(m.blocks[0].segments, (std::vector<int>{0, 1}));
  EXPECT_EQ(m.blocks[1].segments, (std::vector<int>{2}));
  EXPECT_EQ(m.blocks[2].layer, 1);
  EXPECT_EQ(m.blocks[3].segments, (std::vector<int>{4, 0})) << "the head names the tied embedding";
}

TEST(Model, GivesAnUntiedHeadASegmentOfItsOwn) {
  const Model m = make_model(small("llama"));
  EXPECT_EQ(m.segments.back().name(), "head");
  EXPECT_EQ(m.blocks.front().segments, (std::vector<int>{0})) << "rotary positions have no weights";
  EXPECT_EQ(m.blocks.back().segments, (std::vector<int>{3, 4}));
  EXPECT_EQ(tensor(m, "lm_head.weight").shape, (Shape{512, 64}));
}

TEST(Model, NamesGpt2TensorsAsTransformersDoes) {
  Decoder d = small("gpt2");
  d.tied_embeddings = true;
  const Model m = make_model(d);
  const std::vector<std::pair<std::string, Shape>> layer = {
      {"transformer.h.1.ln_1.weight", {64}},
      {"transformer.h.1.ln_1.bias", {64}},
      {"transformer.h.1.attn.c_attn.weight", {64, 192}},
      {"transformer.h.1.attn.c_attn.bias", {192}},
      {"transformer.h.1.attn.c_proj.weight", {64, 64}},
      {"transformer.h.1.attn.c_proj.bias", {64}},
      {"transformer.h.1.ln_2.weight", {64}},
      {"transformer.h.1.ln_2.bias", {64}},
      {"transformer.h.1.mlp.c_fc.weight", {64, 176}},
      {"transformer.h.1.mlp.c_fc.bias", {176}},
      {"transformer.h.1.mlp.c_proj.weight", {176, 64}},
      {"transformer.h.1.mlp.c_proj.bias", {64}},
  };
  ASSERT_EQ(m.segments[3].tensors.size(), layer.size());
  for (std::size_t i = 0; i < layer.size(); ++i) {
    EXPECT_EQ(m.segments[3].tensors[i].name, layer[i].first);
    EXPECT_EQ(m.segments[3].tensors[i].shape, layer[i].second) << layer[i].first;
  }
  EXPECT_EQ(tensor(m, "transformer.wte.weight").shape, (Shape{512, 64}));
  EXPECT_EQ(tensor(m, "transformer.wpe.weight").shape, (Shape{256, 64}));
  EXPECT_EQ(tensor(m, "transformer.ln_f.bias").shape, (Shape{64}));
}

TEST(Model, NamesLlamaTensorsAsTransformersDoes) {
  Decoder d = small("llama");
  d.head_dim = 24;  // not hidden / heads
  const Model m = make_model(d);
  const std::vector<std::pair<std::string, Shape>> layer = {
      {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.self_attn.q_proj.weight", {96, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {48, 64}},
      {"model.layers.0.self_attn.v_proj.weight", {48, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 96}},
      {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.0.mlp.gate_proj.weight", {176, 64}},
      {"model.layers.0.mlp.up_proj.weight", {176, 64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 176}},
  };
  ASSERT_EQ(m.segments[1].tensors.size(), layer.size());
  for (std::size_t i = 0; i < layer.size(); ++i) {
    EXPECT_EQ(m.segments[1].tensors[i].name, layer[i].first);
    EXPECT_EQ(m.segments[1].tensors[i].shape, layer[i].second) << layer[i].first;
  }
  EXPECT_EQ(tensor(m, "model.norm.weight").shape, (Shape{64}));
  EXPECT_EQ(tensor(m, "model.embed_tokens.weight").shape, (Shape{512, 64}));
}

TEST(Model, AddsTheBiasesThatTheDecoderAsksFor) {
  Decoder d = small("llama");
  d.qkv_bias = true;
  d.mlp_bias = true;
  const Model m = make_model(d);
  EXPECT_EQ(tensor(m, "model.layers.1.self_attn.k_proj.bias").shape, (Shape{32}));
  EXPECT_EQ(tensor(m, "model.layers.1.mlp.gate_proj.bias").shape, (Shape{176}));
  EXPECT_EQ(tensor(m, "model.layers.1.mlp.down_proj.bias").shape, (Shape{64}));
  EXPECT_THROW(tensor(m, "model.layers.1.self_attn.o_proj.bias"), Error);
}

TEST(Model, InitialisesGainsToOneBiasesToZeroAndGpt2ProjectionsSmaller) {
  const Model g = make_model(small("gpt2"));
  EXPECT_EQ(tensor(g, "transformer.h.0.ln_1.weight").init, Init::kOnes);
  EXPECT_EQ(tensor(g, "transformer.h.0.ln_1.bias").init, Init::kZeros);
  EXPECT_EQ(tensor(g, "transformer.h.0.attn.c_attn.bias").init, Init::kZeros);
  EXPECT_EQ(tensor(g, "transformer.h.0.attn.c_attn.weight").init_std, 0.02);
  EXPECT_EQ(tensor(g, "transformer.h.0.attn.c_proj.weight").init_std, 0.02 / std::sqrt(4.0));
  EXPECT_EQ(tensor(g, "transformer.h.1.mlp.c_proj.weight").init_std, 0.02 / std::sqrt(4.0));
  const Model l = make_model(small("llama"));
  EXPECT_EQ(tensor(l, "model.layers.1.mlp.down_proj.weight").init_std, 0.02);
}

TEST(Model, DecaysMatricesOnly) {
  const Model m = make_model(small("gpt2"));
  EXPECT_TRUE(tensor(m, "transformer.wpe.weight").decayed());
  EXPECT_FALSE(tensor(m, "transformer.h.0.ln_1.weight").decayed());
  EXPECT_FALSE(tensor(m, "transformer.h.0.mlp.c_fc.bias").decayed());
}

TEST(Model, RolesAndNamesAreUnique) {
  for (const Preset& p : presets()) {
    std::set<std::string> names;
    for (const Segment& s : make_model(p.decoder).segments) {
      std::set<Role> roles;
      for (const TensorSpec& t : s.tensors) {
        EXPECT_TRUE(names.insert(t.name).second) << t.name;
        EXPECT_TRUE(roles.insert(t.role).second) << t.name;
      }
    }
  }
}

TEST(Model, CountsTheParametersOfKnownModels) {
  EXPECT_EQ(make_model(find_preset("gpt2-124m")).parameters(), 124439808U);
  EXPECT_EQ(make_model(find_preset("llama-8b")).parameters(), 8030261248U);
  EXPECT_EQ(make_model(find_preset("llama-1b")).parameters(), 1345423360U);
}

TEST(Model, CountsTheFlopsOfProductsAndCausalAttention) {
  const Model m = make_model(small("llama"));
  EXPECT_EQ(forward_flops(m, m.blocks[0], 3, 5), 0.0);
  // q 64x64, k and v 32x64, o 64x64, three MLP matrices; 15 pairs per head and sequence.
  const double layer = 2.0 * 15 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 176 * 64);
  EXPECT_EQ(forward_flops(m, m.blocks[1], 3, 5), layer + 4.0 * 3 * 15 * 64);
  EXPECT_EQ(forward_flops(m, m.blocks[3], 3, 5), 2.0 * 15 * 512 * 64);
  Decoder seeing_two = small("llama");
  seeing_two.window = 2;  // 1 + 2 + 2 + 2 + 2 pairs
  const Model w = make_model(seeing_two);
  EXPECT_EQ(forward_flops(w, w.blocks[1], 3, 5), layer + 4.0 * 3 * 9 * 64);
}

TEST(Model, RefusesNumbersThatMakeNoModelAndNamesTheKeyOfTheFamily) {
  Decoder d = small("gpt2");
  d.heads = d.kv_heads = 5;
  expect_refused(d, {"model.config.n_head", "5 does not divide n_embd = 64", "as 4"});
  d = small("llama");
  d.kv_heads = 3;
  expect_refused(d, {"model.config.num_key_value_heads", "num_attention_heads = 4", "as 2"});
  d = small("llama");
  d.head_dim = 15;
  expect_refused(d, {"model.config.head_dim", "15 is odd"});
  d = small("llama");
  d.layers = 0;
  expect_refused(d, {"model.config.num_hidden_layers", "0 is out of range", "1 to"});
  d = small("llama");
  d.vocab = -1;
  expect_refused(d, {"model.config.vocab_size", "-1"});
  d = small("gpt2");
  d.norm_eps = std::nan("");
  expect_refused(d, {"model.config.layer_norm_epsilon"});
  d = small("llama");
  d.rope.theta = 0.0;
  expect_refused(d, {"model.config.rope_theta"});
  d = small("llama");
  d.family = "mamba";
  expect_refused(d, {"model.config.model_type", "'mamba'", "gpt2, llama"});
}

TEST(Model, RefusesSizesWhoseProductsWouldOverflow) {
  Decoder d = small("llama");
  d.vocab = std::int64_t{1} << 62;
  expect_refused(d, {"model.config.vocab_size"});
  d = small("llama");
  d.head_dim = 1 << 24;
  expect_refused(d, {"model.config.head_dim", "more than"});
  d = small("llama");
  d.hidden = d.intermediate = 1 << 24;
  d.layers = 1 << 16;
  expect_refused(d, {"65536 layers", "lower"});
}

TEST(Preset, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const Error error = test::error_of([] { find_preset("gpt5"); });
  EXPECT_THAT(error.what(), testing::HasSubstr("tiny, gpt2-124m, llama-1b, llama-8b"));
}

TEST(LossChunk, IsTheWholeVocabularyWhenThatIsSmallAndPartsOfWholeLinesOtherwise) {
  Decoder d = find_family("llama").base;
  d.vocab = 97;
  d.hidden = 32;
  EXPECT_EQ(auto_loss_chunk(d, 4096), d.vocab);
  d.vocab = 151936;
  d.hidden = 1024;
  const std::int64_t chunk = auto_loss_chunk(d, 8192);
  EXPECT_EQ(chunk, 3968) << "38 parts of at most 4096 would have 3998";
  d.vocab = 50257;  // odd: then only what is left over has odd rows
  d.hidden = 768;
  EXPECT_EQ(auto_loss_chunk(d, 2048), 7168);
  EXPECT_EQ(auto_loss_chunk(d, 512), 25088);
  d.vocab = 129;
  EXPECT_EQ(auto_loss_chunk(d, 1 << 30), d.vocab) << "no more than a layer's backward needs";
  d.hidden = 16;
  EXPECT_EQ(auto_loss_chunk(d, 1 << 30), 128);
}

TEST(MlpChunk, IsAllOfAMicroBatchUnlessThatIsLongAndEqualPartsOtherwise) {
  Decoder d = find_family("llama").base;
  d.hidden = 1024;
  EXPECT_EQ(auto_mlp_chunk(d, 8192), 8192);
  EXPECT_EQ(auto_mlp_chunk(d, 8193), 4112);
  d.hidden = 4096;
  EXPECT_EQ(auto_mlp_chunk(d, 16384), 16384);
  EXPECT_EQ(auto_mlp_chunk(d, 131072), 16384);
}

TEST(Kept, HasTheWidthsOfALayerAndNoBytesBeyondItsPages) {
  Decoder d = find_preset("llama-1b");
  d.hidden = 100;
  d.heads = 6;
  d.kv_heads = 2;
  d.head_dim = 20;
  d.intermediate = 300;
  const Kept kept = kept_of(d, 7, DType::kBf16);
  Bytes end = 0;
  const auto expect_next = [&](const KeptTensor& tensor, std::int64_t width, DType dtype) {
    EXPECT_EQ(tensor.shape, (std::array<std::int64_t, 2>{7, width}));
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ(tensor.offset, end);
    end += round_up(static_cast<Bytes>(7 * width) * size_of(dtype), kAlignment);
  };
  expect_next(kept.q_NQ, 120, DType::kBf16);
  expect_next(kept.k_NK, 40, DType::kBf16);
  expect_next(kept.v_NK, 40, DType::kBf16);
  expect_next(kept.context_NQ, 120, DType::kBf16);
  expect_next(kept.logsumexp_Nh, 6, DType::kF32);
  expect_next(kept.mid_NH, 100, DType::kBf16);
  expect_next(kept.gate_NI, 300, DType::kBf16);
  expect_next(kept.up_NI, 300, DType::kBf16);
  EXPECT_EQ(kept.bytes, end);
}

TEST(Kept, HasLogitsChunkByChunkEachBegunOnAPage) {
  Decoder d = find_preset("llama-1b");
  d.vocab = 1000;
  const KeptLogits three = kept_logits_of(d, 7, 400, DType::kBf16);  // the last of 200 columns
  EXPECT_EQ(three.chunk, round_up(Bytes{7 * 400 * 2}, kAlignment));
  EXPECT_EQ(three.bytes, 2 * three.chunk + round_up(Bytes{7 * 200 * 2}, kAlignment));
  EXPECT_EQ(kept_logits_of(d, 7, 500, DType::kF32).bytes,
            2 * round_up(Bytes{7 * 500 * 4}, kAlignment))
      << "nothing is left over";
  for (const std::int64_t all : {1000, 5000}) {
    EXPECT_EQ(kept_logits_of(d, 7, all, DType::kF32).bytes, 0) << "no second pass";
  }
}

}  // namespace
}  // namespace sluice::shape
