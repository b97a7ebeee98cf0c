/// A decoder cut into what is fetched (segments) and what is recomputed (blocks).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/shape/decoder.h"

namespace sluice::shape {

/// What a model function calls a weight, whatever its file calls it. Unique within a segment.
enum class Role : std::uint8_t {
  kTokenEmbedding,     ///< [V, H]; also the head's weight when tied
  kPositionEmbedding,  ///< [P, H]
  kAttentionNormGain,
  kAttentionNormBias,
  kQkvWeight,  ///< fused
  kQkvBias,
  kQWeight,
  kQBias,
  kKWeight,
  kKBias,
  kVWeight,
  kVBias,
  kQNormGain,  ///< [D], as the one of the keys: shared by the heads
  kKNormGain,
  kOutWeight,
  kOutBias,
  kMlpNormGain,
  kMlpNormBias,
  kGateWeight,
  kGateBias,
  kUpWeight,
  kUpBias,
  kDownWeight,
  kDownBias,
  kFinalNormGain,
  kFinalNormBias,
  kHeadWeight,  ///< [V, H]
};

enum class Init : std::uint8_t { kNormal, kZeros, kOnes };

struct TensorSpec {
  Role role;
  std::string
      name;  ///< as in a Hugging Face safetensors file, e.g. "model.layers.3.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;
  Init init = Init::kNormal;
  double init_std = 0.0;  ///< of kNormal
  /// Weight decay applies to tensors of two or more dimensions; biases and norms are not decayed.
  bool decayed() const { return shape.size() >= 2; }
  std::uint64_t numel() const;
};

enum class SegmentKind : std::uint8_t { kTokenEmbedding, kPositions, kLayer, kFinalNorm, kHead };

/// The unit of fetching and of a compute op.
struct Segment {
  SegmentKind kind;
  int layer = -1;  ///< of kLayer
  std::vector<TensorSpec> tensors;
  std::string name() const;  ///< "embedding", "positions", "layer 3", "final norm", "head"
};

enum class BlockKind : std::uint8_t { kEmbed, kLayer, kHead };

/// The unit of recomputation: what lies between two saved inputs.
struct Block {
  BlockKind kind;
  int layer = -1;             ///< of kLayer
  std::vector<int> segments;  ///< indices into Model::segments; a tied embedding is in two blocks
};

struct Model {
  Decoder decoder;
  std::vector<Segment> segments;
  std::vector<Block> blocks;  ///< embed, every layer, head
  std::uint64_t parameters() const;
};

/// Throws kConfig, naming the key and the fix, when the numbers do not make a model.
Model make_model(const Decoder& decoder);

/// Floating-point operations of one block's forward for `batch` sequences of `seq` tokens
/// (a multiply-add counts two; a backward costs twice this, and once more for recomputation).
/// Attention counts the pairs that a causal mask and a window leave, of rows that are one document
/// each; norms and activations count nothing.
double forward_flops(const Model& model, const Block& block, std::int64_t batch, std::int64_t seq);

/// Vocabulary columns that the head takes at a time, for micro-batches of `tokens` tokens: the
/// whole vocabulary when its logits are no larger than what a layer's backward needs anyway, else
/// parts of about that size, of a multiple of 64, and what is left over.
std::int64_t auto_loss_chunk(const Decoder& decoder, std::int64_t tokens);

/// Tokens that a layer's MLP takes at a time, of micro-batches of `tokens` tokens: all of them up
/// to where several chunks would save less than the fp32 sums of their weight gradients take, and
/// 8192; else equal parts of about that size.
std::int64_t auto_mlp_chunk(const Decoder& decoder, std::int64_t tokens);

}  // namespace sluice::shape
