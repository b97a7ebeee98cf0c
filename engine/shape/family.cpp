#include "engine/shape/family.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"

namespace sluice::shape {
namespace {

std::int64_t as_many_as_heads(const Decoder& d) {
  return d.heads;
}
std::int64_t hidden_over_heads(const Decoder& d) {
  return d.hidden / d.heads;
}
std::int64_t four_times_hidden(const Decoder& d) {
  return 4 * std::min(d.hidden, std::int64_t{1} << 32);  // check() refuses more
}
// What transformers takes where config.json says nothing.
template <std::int64_t kValue>
std::int64_t usual(const Decoder&) {
  return kValue;
}

Family gpt2() {
  Family f;
  f.model_type = "gpt2";
  f.architecture = "GPT2LMHeadModel";
  f.base.norm = Norm::kLayer;
  f.base.positions = Positions::kLearned;
  f.base.mlp = Mlp::kPlain;
  f.base.activation = Activation::kGeluTanh;
  f.base.qkv_bias = true;
  f.base.attention_out_bias = true;
  f.base.mlp_bias = true;
  f.base.fused_qkv = true;
  f.base.linear = LinearLayout::kInOut;
  f.activation_key = "activation_function";
  f.residual_init = ResidualInit::kOverSqrtTwiceLayers;
  f.padding = false;
  f.sizes = {
      {"vocab_size", &Decoder::vocab},
      {"n_embd", &Decoder::hidden},
      {"n_layer", &Decoder::layers},
      {"n_head", &Decoder::heads},
      {"", &Decoder::kv_heads, as_many_as_heads},
      {"", &Decoder::head_dim, hidden_over_heads},
      {"n_inner", &Decoder::intermediate, four_times_hidden},
      {"n_positions", &Decoder::max_positions},
  };
  f.reals = {
      {"layer_norm_epsilon", &Decoder::norm_eps, 1e-5},
      {"initializer_range", &Decoder::init_std, 0.02},
  };
  f.flags = {{"tie_word_embeddings", &Decoder::tied_embeddings, true}};
  f.fixed = {
      {"scale_attn_weights", true},
      {"scale_attn_by_inverse_layer_idx", false},
      {"reorder_and_upcast_attn", false},
      {"add_cross_attention", false},
  };
  f.dropouts = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
  f.names = {
      {Role::kTokenEmbedding, "transformer.wte.weight"},
      {Role::kPositionEmbedding, "transformer.wpe.weight"},
      {Role::kAttentionNormGain, "transformer.h.{}.ln_1.weight"},
      {Role::kAttentionNormBias, "transformer.h.{}.ln_1.bias"},
      {Role::kQkvWeight, "transformer.h.{}.attn.c_attn.weight"},
      {Role::kQkvBias, "transformer.h.{}.attn.c_attn.bias"},
      {Role::kOutWeight, "transformer.h.{}.attn.c_proj.weight"},
      {Role::kOutBias, "transformer.h.{}.attn.c_proj.bias"},
      {Role::kMlpNormGain, "transformer.h.{}.ln_2.weight"},
      {Role::kMlpNormBias, "transformer.h.{}.ln_2.bias"},
      {Role::kUpWeight, "transformer.h.{}.mlp.c_fc.weight"},
      {Role::kUpBias, "transformer.h.{}.mlp.c_fc.bias"},
      {Role::kDownWeight, "transformer.h.{}.mlp.c_proj.weight"},
      {Role::kDownBias, "transformer.h.{}.mlp.c_proj.bias"},
      {Role::kFinalNormGain, "transformer.ln_f.weight"},
      {Role::kFinalNormBias, "transformer.ln_f.bias"},
      {Role::kHeadWeight, "lm_head.weight"},
  };
  return f;
}

Family llama() {
  Family f;
  f.model_type = "llama";
  f.architecture = "LlamaForCausalLM";
  f.activation_key = "hidden_act";
  f.residual_init = ResidualInit::kAsOthers;
  f.sizes = {
      {"vocab_size", &Decoder::vocab},
      {"hidden_size", &Decoder::hidden},
      {"num_hidden_layers", &Decoder::layers},
      {"num_attention_heads", &Decoder::heads},
      {"num_key_value_heads", &Decoder::kv_heads, as_many_as_heads},
      {"head_dim", &Decoder::head_dim, hidden_over_heads},
      {"intermediate_size", &Decoder::intermediate},
      {"max_position_embeddings", &Decoder::max_positions, usual<2048>},
  };
  f.reals = {
      {"rms_norm_eps", &Decoder::norm_eps, 1e-6},
      {"initializer_range", &Decoder::init_std, 0.02},
  };
  f.flags = {
      {"attention_bias", &Decoder::qkv_bias, false},
      {"attention_bias", &Decoder::attention_out_bias, false},
      {"mlp_bias", &Decoder::mlp_bias, false},
      {"tie_word_embeddings", &Decoder::tied_embeddings, false},
  };
  f.fixed = {{"pretraining_tp", std::int64_t{1}}, {"rope_interleaved", false}};
  f.dropouts = {"attention_dropout"};
  f.names = {
      {Role::kTokenEmbedding, "model.embed_tokens.weight"},
      {Role::kAttentionNormGain, "model.layers.{}.input_layernorm.weight"},
      {Role::kQWeight, "model.layers.{}.self_attn.q_proj.weight"},
      {Role::kQBias, "model.layers.{}.self_attn.q_proj.bias"},
      {Role::kKWeight, "model.layers.{}.self_attn.k_proj.weight"},
      {Role::kKBias, "model.layers.{}.self_attn.k_proj.bias"},
      {Role::kVWeight, "model.layers.{}.self_attn.v_proj.weight"},
      {Role::kVBias, "model.layers.{}.self_attn.v_proj.bias"},
      {Role::kOutWeight, "model.layers.{}.self_attn.o_proj.weight"},
      {Role::kOutBias, "model.layers.{}.self_attn.o_proj.bias"},
      {Role::kMlpNormGain, "model.layers.{}.post_attention_layernorm.weight"},
      {Role::kGateWeight, "model.layers.{}.mlp.gate_proj.weight"},
      {Role::kGateBias, "model.layers.{}.mlp.gate_proj.bias"},
      {Role::kUpWeight, "model.layers.{}.mlp.up_proj.weight"},
      {Role::kUpBias, "model.layers.{}.mlp.up_proj.bias"},
      {Role::kDownWeight, "model.layers.{}.mlp.down_proj.weight"},
      {Role::kDownBias, "model.layers.{}.mlp.down_proj.bias"},
      {Role::kFinalNormGain, "model.norm.weight"},
      {Role::kHeadWeight, "lm_head.weight"},
  };
  return f;
}

/// The sizes of a family that names them as Llama does, but has other defaults.
std::vector<SizeKey> sizes_like_llama(std::int64_t (*kv_heads)(const Decoder&),
                                      std::int64_t (*head_dim)(const Decoder&),
                                      std::int64_t (*positions)(const Decoder&)) {
  std::vector<SizeKey> sizes = llama().sizes;
  for (SizeKey& row : sizes) {
    if (row.field == &Decoder::kv_heads) row.absent = kv_heads, row.null = as_many_as_heads;
    if (row.field == &Decoder::head_dim) row.absent = head_dim;
    if (row.field == &Decoder::max_positions) row.absent = positions;
  }
  return sizes;
}

Family mistral() {
  Family f = llama();
  f.model_type = "mistral";
  f.heads_divide = false;
  f.architecture = "MistralForCausalLM";
  f.sizes = sizes_like_llama(usual<8>, hidden_over_heads, usual<131072>);
  f.flags = {{"tie_word_embeddings", &Decoder::tied_embeddings, false}};
  f.fixed = {};
  f.window = {.key = "sliding_window", .absent = 4096};
  return f;
}

Family qwen2() {
  Family f = llama();
  f.model_type = "qwen2";
  f.heads_divide = false;
  f.architecture = "Qwen2ForCausalLM";
  f.base.qkv_bias = true;
  f.sizes = sizes_like_llama(usual<32>, hidden_over_heads, usual<32768>);
  f.flags = {{"tie_word_embeddings", &Decoder::tied_embeddings, false}};
  f.fixed = {{"use_mrope", false}};
  f.window = {.key = "sliding_window",
              .on = "use_sliding_window",
              .absent = 4096,
              .first_layer = "max_window_layers",
              .first_layer_absent = 28};
  return f;
}

Family qwen3() {
  Family f = qwen2();
  f.model_type = "qwen3";
  f.architecture = "Qwen3ForCausalLM";
  f.base.qkv_bias = false;
  f.base.qk_norm = true;
  f.sizes = sizes_like_llama(usual<32>, usual<128>, usual<32768>);
  f.flags = {
      {"attention_bias", &Decoder::qkv_bias, false},
      {"attention_bias", &Decoder::attention_out_bias, false},
      {"tie_word_embeddings", &Decoder::tied_embeddings, false},
  };
  f.names.push_back({Role::kQNormGain, "model.layers.{}.self_attn.q_norm.weight"});
  f.names.push_back({Role::kKNormGain, "model.layers.{}.self_attn.k_norm.weight"});
  return f;
}

std::vector<Family> family_table() {
  std::vector<Family> rows = {gpt2(), llama(), mistral(), qwen2(), qwen3()};
  for (Family& f : rows) f.base.family = f.model_type;
  return rows;
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> kRows = family_table();
  return kRows;
}

const Family& find_family(std::string_view model_type, std::string_view where) {
  std::string known;
  for (const Family& f : families()) {
    if (f.model_type == model_type) return f;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", f.model_type);
  }
  throw Error(Errc::kConfig, fmt::format("{}.model_type: '{}' is not built; choose one of {}",
                                         where, model_type, known));
}

std::string tensor_name(const Family& family, Role role, int layer) {
  for (const TensorName& n : family.names) {
    if (n.role == role) return fmt::format(fmt::runtime(n.pattern), layer);
  }
  throw Error(Errc::kLogic, fmt::format("{} has no name for tensor role {}", family.model_type,
                                        static_cast<int>(role)));
}

}  // namespace sluice::shape
