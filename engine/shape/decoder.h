/// A decoder language model as numbers. Every family is a value of this struct, never a class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::shape {

enum class Norm : std::uint8_t { kLayer, kRms };
enum class Positions : std::uint8_t { kLearned, kRotary };
enum class Mlp : std::uint8_t { kPlain, kGated };
enum class Activation : std::uint8_t { kGelu, kGeluTanh, kSilu };
/// How a linear layer's weight is stored: [out, in] as torch.nn.Linear, or [in, out] as GPT-2's
/// Conv1D.
enum class LinearLayout : std::uint8_t { kOutIn, kInOut };

/// How a model that was trained on few positions reaches many, by the names of transformers.
enum class RopeScaling : std::uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn };

/// The rotary angles. What a scaling does not use stays as it is here.
struct Rope {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  std::int64_t original_positions = 0;                   ///< that it was trained on: kLlama3, kYarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< kLlama3
  double beta_fast = 32.0, beta_slow = 1.0;  ///< kYarn: turns over the original positions
  bool truncate = true;                      ///< kYarn: the bounds of the ramp are whole pairs
  double attention_factor = 1.0;             ///< kYarn: of cosines and sines

  bool operator==(const Rope&) const = default;
};

struct Decoder {
  std::string family;  ///< Hugging Face model_type: picks tensor names and the config.json written
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< < heads: grouped-query attention
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t max_positions = 0;
  Norm norm = Norm::kRms;
  double norm_eps = 1e-5;
  Positions positions = Positions::kRotary;
  Rope rope;
  std::int64_t window = 0;  ///< tokens that attention reaches back over, itself too; 0: all
  Mlp mlp = Mlp::kGated;
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;    ///< RMS norm of each head's queries and keys, before rotary
  bool fused_qkv = false;  ///< one projection to [q | k | v]
  LinearLayout linear = LinearLayout::kOutIn;
  bool tied_embeddings = false;  ///< the head's weight is the token embedding
  double init_std = 0.02;

  bool operator==(const Decoder&) const = default;
};

}  // namespace sluice::shape
