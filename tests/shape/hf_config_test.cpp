#include "engine/shape/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/shape/presets.h"
#include "tests/support/errors.h"

namespace sluice::shape {
namespace {

using nlohmann::json;

json gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 512}, {"n_embd", 64},
          {"n_layer", 2},         {"n_head", 4},       {"n_positions", 256}};
}

json llama() {
  return {{"model_type", "llama"},         {"vocab_size", 512},        {"hidden_size", 64},
          {"num_hidden_layers", 2},        {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"intermediate_size", 176},      {"rms_norm_eps", 1e-5},     {"rope_theta", 5e5},
          {"max_position_embeddings", 256}};
}

json with(json base, const char* key, json value) {
  base[key] = std::move(value);
  return base;
}

void expect_refused(const json& values, const std::vector<std::string>& words) {
  SCOPED_TRACE(values.dump());
  test::expect_error(Errc::kConfig, words, [&] { from_config(values); });
}

TEST(FromConfig, ReadsGpt2WithTheDefaultsOfTransformers) {
  const Decoder d = from_config(gpt2());
  EXPECT_EQ(d.family, "gpt2");
  EXPECT_EQ(d.hidden, 64);
  EXPECT_EQ(d.kv_heads, 4);
  EXPECT_EQ(d.head_dim, 16);
  EXPECT_EQ(d.intermediate, 256) << "four times n_embd";
  EXPECT_EQ(d.max_positions, 256);
  EXPECT_EQ(d.norm, Norm::kLayer);
  EXPECT_EQ(d.norm_eps, 1e-5);
  EXPECT_EQ(d.activation, Activation::kGeluTanh);
  EXPECT_EQ(d.linear, LinearLayout::kInOut);
  EXPECT_TRUE(d.fused_qkv && d.qkv_bias && d.attention_out_bias && d.mlp_bias);
  EXPECT_TRUE(d.tied_embeddings);
  EXPECT_EQ(from_config(with(gpt2(), "n_inner", nullptr)), d) << "null is absent";
  EXPECT_EQ(from_config(with(gpt2(), "n_inner", 176)).intermediate, 176);
}

TEST(FromConfig, ReadsLlama) {
  const Decoder d = from_config(llama());
  EXPECT_EQ(d.family, "llama");
  EXPECT_EQ(d.kv_heads, 2);
  EXPECT_EQ(d.head_dim, 16);
  EXPECT_EQ(d.norm, Norm::kRms);
  EXPECT_EQ(d.norm_eps, 1e-5);
  EXPECT_EQ(d.rope.theta, 5e5);
  EXPECT_EQ(d.mlp, Mlp::kGated);
  EXPECT_EQ(d.activation, Activation::kSilu);
  EXPECT_EQ(d.linear, LinearLayout::kOutIn);
  EXPECT_FALSE(d.tied_embeddings);
  EXPECT_EQ(from_config(with(llama(), "head_dim", 32)).head_dim, 32);
  const Decoder biased = from_config(with(llama(), "attention_bias", true));
  EXPECT_TRUE(biased.qkv_bias && biased.attention_out_bias);
  EXPECT_FALSE(biased.mlp_bias);
}

TEST(FromConfig, LlamaDefaultsAreThoseOfTransformers) {
  json values = llama();
  for (const char* key :
       {"num_key_value_heads", "rms_norm_eps", "rope_theta", "max_position_embeddings"}) {
    values.erase(key);
  }
  const Decoder d = from_config(values);
  EXPECT_EQ(d.kv_heads, 4);
  EXPECT_EQ(d.norm_eps, 1e-6);
  EXPECT_EQ(d.rope.theta, 10000.0);
  EXPECT_EQ(d.max_positions, 2048);
}

TEST(FromConfig, ReadsTheRotaryBaseOfVersion4And5) {
  json values = llama();
  values.erase("rope_theta");
  values["rope_parameters"] = {{"rope_theta", 7e4}, {"rope_type", "default"}};
  EXPECT_EQ(from_config(values).rope.theta, 7e4);
  expect_refused(with(values, "rope_theta", 1e4), {"model.config.rope_theta", "rope_parameters"});
  EXPECT_EQ(from_config(with(llama(), "rope_scaling", nullptr)).rope.theta, 5e5);
}

TEST(FromConfig, TakesKeysThatChangeNothingInTraining) {
  json values = gpt2();
  values["architectures"] = {"GPT2LMHeadModel"};
  values["use_cache"] = true;
  values["torch_dtype"] = "float32";
  values["dtype"] = "bfloat16";
  values["eos_token_id"] = 0;
  values["summary_first_dropout"] = 0.1;
  values["attn_pdrop"] = 0;
  values["resid_pdrop"] = 0.0;
  values["scale_attn_weights"] = true;
  EXPECT_EQ(from_config(values), from_config(gpt2()));
}

TEST(FromConfig, TrainsWithoutDropoutAloud) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(from_config(with(gpt2(), "attn_pdrop", 0.1)), from_config(gpt2()));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("model.config.attn_pdrop: 0.1"), std::string::npos) << said;
  expect_refused(with(gpt2(), "attn_pdrop", 1.0), {"model.config.attn_pdrop", "below 1"});
}

/// One layer of heads that are normed, with sizes of its own.
json qwen3() {
  return {{"model_type", "qwen3"},    {"vocab_size", 512},
          {"hidden_size", 64},        {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"intermediate_size", 176}, {"max_position_embeddings", 256}};
}

TEST(FromConfig, FamiliesHaveTheirOwnDefaults) {
  const Decoder d = from_config(qwen3());
  EXPECT_TRUE(d.qk_norm);
  EXPECT_FALSE(d.qkv_bias);
  EXPECT_EQ(d.head_dim, 128);
  json values = qwen3();
  values["model_type"] = "qwen2";
  EXPECT_EQ(from_config(values).head_dim, 16);
  EXPECT_TRUE(from_config(values).qkv_bias);
  EXPECT_FALSE(from_config(values).attention_out_bias);
  values["model_type"] = "mistral";
  values.erase("num_key_value_heads");
  values["num_attention_heads"] = 8;
  EXPECT_EQ(from_config(values).kv_heads, 8);
  values["num_attention_heads"] = 16;
  EXPECT_EQ(from_config(with(values, "num_key_value_heads", nullptr)).kv_heads, 16);
}

TEST(FromConfig, HeadsDivideHiddenWhereTransformersAsksForIt) {
  json values = with(with(qwen3(), "hidden_size", 70), "head_dim", 16);
  EXPECT_EQ(from_config(values).hidden, 70);
  values["model_type"] = "llama";
  expect_refused(values, {"model.config.num_attention_heads", "does not divide hidden_size = 70"});
}

TEST(FromConfig, SaysThatPaddingIsTrained) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(from_config(with(qwen3(), "pad_token_id", 7)), from_config(qwen3()));
  EXPECT_EQ(from_config(with(gpt2(), "pad_token_id", 7)), from_config(gpt2()));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("model.config.pad_token_id: 7"), std::string::npos) << said;
  EXPECT_EQ(said.find("pad_token_id"), said.rfind("pad_token_id")) << said;
}

TEST(FromConfig, ReadsHowFarAttentionReachesBack) {
  json values = qwen3();
  values["sliding_window"] = 128;
  EXPECT_EQ(from_config(values).window, 0);  // it is not switched on
  values["use_sliding_window"] = true;
  EXPECT_EQ(from_config(values).window, 0);  // from the 28th layer on, and there are two
  EXPECT_EQ(from_config(with(values, "max_window_layers", 0)).window, 128);
  expect_refused(with(values, "max_window_layers", 1),
                 {"model.config.sliding_window", "1 of 2 layers"});
  expect_refused(with(values, "layer_types", {"full_attention", "sliding_attention"}),
                 {"model.config.sliding_window", "1 of 2 layers"});
  EXPECT_EQ(
      from_config(with(values, "layer_types", {"sliding_attention", "sliding_attention"})).window,
      128);
  values["model_type"] = "mistral";
  values.erase("use_sliding_window");
  EXPECT_EQ(from_config(values).window, 128);
  EXPECT_EQ(from_config(with(values, "sliding_window", 256)).window, 256);
  EXPECT_EQ(from_config(with(values, "layer_types", {"full_attention"})).window, 128);
  EXPECT_EQ(from_config(with(values, "sliding_window", nullptr)).window, 0);
  expect_refused(with(values, "sliding_window", 0), {"model.config.sliding_window", "at least 1"});
  values.erase("sliding_window");
  EXPECT_EQ(from_config(with(values, "max_position_embeddings", 8192)).window, 4096);
}

/// Scaled rotary angles as both versions of transformers write them.
TEST(FromConfig, ReadsScaledPositions) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  json old = with(llama(), "rope_scaling", llama3);
  old["rope_theta"] = 500000.0;
  json now = llama();
  now.erase("rope_theta");
  now["rope_parameters"] = with(llama3, "rope_theta", 500000.0);
  EXPECT_EQ(from_config(old), from_config(now));
  const Rope rope = from_config(now).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(rope.theta, 500000.0);
  EXPECT_EQ(rope.factor, 8.0);
  EXPECT_EQ(rope.original_positions, 64);

  const json yarn = {{"type", "yarn"}, {"factor", 4.0}};
  const Decoder d = from_config(with(llama(), "rope_scaling", yarn));
  EXPECT_EQ(d.rope.original_positions, d.max_positions);
  EXPECT_NEAR(d.rope.attention_factor, 1.1386294361119891, 1e-15);  // 0.1 ln 4 + 1
  const json scaled = with(with(yarn, "mscale", 2.0), "mscale_all_dim", 1.0);
  EXPECT_NEAR(from_config(with(llama(), "rope_scaling", scaled)).rope.attention_factor,
              1.2772588722239782 / 1.1386294361119891, 1e-15);

  for (const json& scaling : {llama3, yarn, json{{"type", "linear"}, {"factor", 2}},
                              json{{"rope_type", "dynamic"}, {"factor", 2.0}}}) {
    const Decoder read = from_config(with(llama(), "rope_scaling", scaling));
    EXPECT_EQ(from_config(to_config_json(read)), read) << scaling.dump();
  }
}

TEST(FromConfig, RefusesScaledPositionsThatAreNone) {
  const auto refused = [](const json& scaling, const std::vector<std::string>& words) {
    expect_refused(with(llama(), "rope_scaling", scaling), words);
  };
  refused({{"type", "longrope"}}, {"rope_scaling.type", "longrope", "linear, dynamic, llama3"});
  refused({{"type", "linear"}}, {"rope_scaling.factor: is missing"});
  refused({{"type", "linear"}, {"factor", 0}}, {"rope_scaling.factor", "above 0"});
  refused({{"type", "linear"}, {"factor", 2}, {"beta_fast", 3}}, {"rope_scaling.beta_fast"});
  refused({{"type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.5}},
          {"rope_scaling.partial_rotary_factor", "0.5"});
  refused({{"type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}},
          {"rope_scaling.high_freq_factor", "above low_freq_factor"});
  refused({{"type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", 0}},
          {"original_max_position_embeddings", "at least 1"});
}

TEST(FromConfig, RefusesWhatWouldChangeTheMaths) {
  expect_refused(with(gpt2(), "scale_attn_by_inverse_layer_idx", true),
                 {"model.config.scale_attn_by_inverse_layer_idx", "only false"});
  expect_refused(with(gpt2(), "scale_attn_weights", 1),
                 {"model.config.scale_attn_weights", "only true"});
  expect_refused(with(llama(), "sliding_window", 4096),
                 {"model.config.sliding_window", "4096", "may change the maths", "hidden_size"});
  expect_refused(with(llama(), "n_embd", 64), {"model.config.n_embd"});
  expect_refused(with(gpt2(), "activation_function", "relu"),
                 {"model.config.activation_function", "relu", "gelu_new"});
}

TEST(FromConfig, RefusesBadValuesWithKeyValueAndFix) {
  expect_refused(with(gpt2(), "n_head", 5), {"model.config.n_head", "5 does not divide", "as 4"});
  expect_refused(with(gpt2(), "n_head", 0), {"model.config.n_head", "0", "at least 1"});
  expect_refused(with(llama(), "hidden_size", -64), {"model.config.hidden_size", "-64"});
  expect_refused(with(llama(), "num_hidden_layers", 2.5),
                 {"model.config.num_hidden_layers", "2.5", "whole number"});
  expect_refused(with(llama(), "vocab_size", "512"), {"model.config.vocab_size", "whole number"});
  expect_refused(with(llama(), "vocab_size", 18446744073709551615U),
                 {"model.config.vocab_size", "out of range"});
  expect_refused(with(llama(), "hidden_size", std::int64_t{1} << 40),
                 {"model.config.hidden_size", "out of range"});
  expect_refused(with(llama(), "rms_norm_eps", true), {"model.config.rms_norm_eps", "a number"});
  expect_refused(with(llama(), "rms_norm_eps", 0.0), {"model.config.rms_norm_eps", "above 0"});
  expect_refused(with(llama(), "tie_word_embeddings", 1),
                 {"model.config.tie_word_embeddings", "true or false"});
  expect_refused(with(llama(), "model_type", "t5"),
                 {"model.config.model_type", "gpt2, llama, mistral"});
  expect_refused(json::array(), {"model.config", "table of keys"});
  for (const char* key : {"model_type", "hidden_size", "vocab_size", "intermediate_size"}) {
    json values = llama();
    values.erase(key);
    expect_refused(values, {std::string("model.config.") + key, "missing"});
  }
}

TEST(FromConfig, NamesTheFileItWasReadFrom) {
  const Error error =
      test::error_of([] { from_config(with(gpt2(), "n_head", 5), "m/config.json"); });
  EXPECT_THAT(error.what(), testing::StartsWith("m/config.json.n_head"));
}

TEST(ToConfig, IsReadBackAsTheSameDecoder) {
  for (const Preset& p : presets()) {
    EXPECT_EQ(from_config(to_config_json(p.decoder)), p.decoder) << p.name;
  }
}

TEST(ToConfig, SaysWhatTransformersNeeds) {
  const json l = to_config_json(from_config(llama()));
  EXPECT_EQ(l["architectures"], json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(l["rope_theta"], 5e5);
  EXPECT_EQ(l["rope_parameters"], (json{{"rope_theta", 5e5}, {"rope_type", "default"}}));
  EXPECT_EQ(l["head_dim"], 16);
  EXPECT_TRUE(l["pretraining_tp"].is_number_integer()) << "transformers 5 checks the types";
  const json g = to_config_json(from_config(gpt2()));
  EXPECT_EQ(g["architectures"], json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(g["resid_pdrop"], 0.0) << "transformers assumes 0.1";
  EXPECT_EQ(g["activation_function"], "gelu_new");
}

TEST(ToConfig, RefusesADecoderThatItsFamilyCannotSay) {
  Decoder d = from_config(llama());
  d.qkv_bias = true;  // without a bias on the output projection, llama has no key for it
  EXPECT_THROW(to_config_json(d), Error);
}

}  // namespace
}  // namespace sluice::shape
