#include "engine/shape/model.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/shape/family.h"

namespace sluice::shape {
namespace {

// 2^48: sixteen bytes of state for each still count in 64 bits.
constexpr std::uint64_t kMaxParameters = std::uint64_t{1} << 48;

/// Writes down the tensors of one segment in the order in which they are used.
class Tensors {
 public:
  Tensors(const Decoder& decoder, int layer)
      : d_(decoder), family_(find_family(decoder.family)), layer_(layer) {}

  void embedding(Role role, std::int64_t rows) { add(role, {rows, d_.hidden}, d_.init_std); }

  void norm(Role gain, Role bias) {
    ones(gain, d_.hidden);
    if (d_.norm == Norm::kLayer) zeros(bias, d_.hidden);
  }
  void head_norm(Role gain) { ones(gain, d_.head_dim); }

  void linear(Role weight, Role bias, std::int64_t in, std::int64_t out, double std) {
    if (d_.linear == LinearLayout::kOutIn) {
      add(weight, {out, in}, std);
    } else {
      add(weight, {in, out}, std);
    }
    if (has(bias)) zeros(bias, out);
  }

  std::vector<TensorSpec> take() { return std::move(specs_); }

  double residual_std() const {
    if (family_.residual_init == ResidualInit::kAsOthers) return d_.init_std;
    return d_.init_std / std::sqrt(2.0 * static_cast<double>(d_.layers));
  }

 private:
  std::string name(Role role) const { return tensor_name(family_, role, layer_); }
  void add(Role role, std::vector<std::int64_t> shape, double std) {
    specs_.push_back({role, name(role), std::move(shape), Init::kNormal, std});
  }
  void ones(Role role, std::int64_t n) {
    specs_.push_back({role, name(role), {n}, Init::kOnes, 0.0});
  }
  void zeros(Role role, std::int64_t n) {
    specs_.push_back({role, name(role), {n}, Init::kZeros, 0.0});
  }
  bool has(Role bias) const {
    switch (bias) {
      case Role::kQkvBias:
      case Role::kQBias:
      case Role::kKBias:
      case Role::kVBias:
        return d_.qkv_bias;
      case Role::kOutBias:
        return d_.attention_out_bias;
      default:
        return d_.mlp_bias;
    }
  }

  const Decoder& d_;
  const Family& family_;
  int layer_;
  std::vector<TensorSpec> specs_;
};

void add_attention(Tensors& t, const Decoder& d) {
  const std::int64_t q = d.heads * d.head_dim;
  const std::int64_t kv = d.kv_heads * d.head_dim;
  t.norm(Role::kAttentionNormGain, Role::kAttentionNormBias);
  if (d.fused_qkv) {
    t.linear(Role::kQkvWeight, Role::kQkvBias, d.hidden, q + 2 * kv, d.init_std);
  } else {
    t.linear(Role::kQWeight, Role::kQBias, d.hidden, q, d.init_std);
    t.linear(Role::kKWeight, Role::kKBias, d.hidden, kv, d.init_std);
    t.linear(Role::kVWeight, Role::kVBias, d.hidden, kv, d.init_std);
  }
  if (d.qk_norm) {
    t.head_norm(Role::kQNormGain);
    t.head_norm(Role::kKNormGain);
  }
  t.linear(Role::kOutWeight, Role::kOutBias, q, d.hidden, t.residual_std());
}

void add_mlp(Tensors& t, const Decoder& d) {
  t.norm(Role::kMlpNormGain, Role::kMlpNormBias);
  if (d.mlp == Mlp::kGated) {
    t.linear(Role::kGateWeight, Role::kGateBias, d.hidden, d.intermediate, d.init_std);
  }
  t.linear(Role::kUpWeight, Role::kUpBias, d.hidden, d.intermediate, d.init_std);
  t.linear(Role::kDownWeight, Role::kDownBias, d.intermediate, d.hidden, t.residual_std());
}

Segment make_layer(const Decoder& d, int layer) {
  Tensors t(d, layer);
  add_attention(t, d);
  add_mlp(t, d);
  return {SegmentKind::kLayer, layer, t.take()};
}

Segment make_end(const Decoder& d, SegmentKind kind) {
  Tensors t(d, -1);
  switch (kind) {
    case SegmentKind::kTokenEmbedding:
      t.embedding(Role::kTokenEmbedding, d.vocab);
      break;
    case SegmentKind::kPositions:
      t.embedding(Role::kPositionEmbedding, d.max_positions);
      break;
    case SegmentKind::kFinalNorm:
      t.norm(Role::kFinalNormGain, Role::kFinalNormBias);
      break;
    case SegmentKind::kHead:
      t.embedding(Role::kHeadWeight, d.vocab);
      break;
    case SegmentKind::kLayer:
      throw Error(Errc::kLogic, "a layer is no end of a model");
  }
  return {kind, -1, t.take()};
}

std::uint64_t numel(const Segment& segment) {
  std::uint64_t n = 0;
  for (const TensorSpec& t : segment.tensors) n += t.numel();
  return n;
}

// Asked of one layer, before the others are written down.
void check_total(const Decoder& d, const Segment& layer) {
  const std::uint64_t each = numel(layer);
  const auto layers = static_cast<std::uint64_t>(d.layers);
  if (each <= kMaxParameters / layers) return;
  throw Error(Errc::kConfig,
              fmt::format("model.config: {} layers of {} parameters are more than {} parameters; "
                          "lower the number of layers or their sizes",
                          layers, each, kMaxParameters));
}

}  // namespace

std::uint64_t TensorSpec::numel() const {
  std::uint64_t n = 1;
  for (const std::int64_t extent : shape) n *= static_cast<std::uint64_t>(extent);
  return n;
}

std::string Segment::name() const {
  switch (kind) {
    case SegmentKind::kTokenEmbedding:
      return "embedding";
    case SegmentKind::kPositions:
      return "positions";
    case SegmentKind::kLayer:
      return fmt::format("layer {}", layer);
    case SegmentKind::kFinalNorm:
      return "final norm";
    case SegmentKind::kHead:
      return "head";
  }
  throw Error(Errc::kLogic, "a segment of no kind");
}

std::uint64_t Model::parameters() const {
  std::uint64_t n = 0;
  for (const Segment& s : segments) n += numel(s);
  return n;
}

Model make_model(const Decoder& decoder) {
  check(decoder);
  Model m;
  m.decoder = decoder;
  const auto add = [&m](Segment s) {
    m.segments.push_back(std::move(s));
    return static_cast<int>(m.segments.size()) - 1;
  };

  const int embedding = add(make_end(decoder, SegmentKind::kTokenEmbedding));
  Block embed{BlockKind::kEmbed, -1, {embedding}};
  if (decoder.positions == Positions::kLearned) {
    embed.segments.push_back(add(make_end(decoder, SegmentKind::kPositions)));
  }
  m.blocks.push_back(std::move(embed));

  check_total(decoder, make_layer(decoder, 0));
  for (int layer = 0; layer < static_cast<int>(decoder.layers); ++layer) {
    m.blocks.push_back({BlockKind::kLayer, layer, {add(make_layer(decoder, layer))}});
  }

  Block head{BlockKind::kHead, -1, {add(make_end(decoder, SegmentKind::kFinalNorm))}};
  head.segments.push_back(decoder.tied_embeddings ? embedding
                                                  : add(make_end(decoder, SegmentKind::kHead)));
  m.blocks.push_back(std::move(head));
  return m;
}

double forward_flops(const Model& model, const Block& block, std::int64_t batch, std::int64_t seq) {
  if (block.kind == BlockKind::kEmbed) return 0.0;  // a lookup
  double products = 0.0;                            // elements of the matrices of its products
  for (const int s : block.segments) {
    for (const TensorSpec& t : model.segments.at(static_cast<std::size_t>(s)).tensors) {
      if (t.shape.size() == 2) products += static_cast<double>(t.numel());
    }
  }
  const double tokens = static_cast<double>(batch) * static_cast<double>(seq);
  double flops = 2.0 * tokens * products;
  if (block.kind == BlockKind::kLayer) {
    const Decoder& d = model.decoder;
    const auto most = static_cast<double>(d.window > 0 ? std::min(d.window, seq) : seq);
    // Of a sequence: all before it for the first `most` tokens, `most` for the others.
    const double pairs = tokens * most - static_cast<double>(batch) * most * (most - 1.0) / 2.0;
    // Queries times keys, and weights times values.
    flops += 2.0 * 2.0 * pairs * static_cast<double>(d.heads) * static_cast<double>(d.head_dim);
  }
  return flops;
}

std::int64_t auto_loss_chunk(const Decoder& d, std::int64_t tokens) {
  constexpr std::uint64_t kAlwaysFine = 1 << 24;  // elements: 64 MiB of fp32
  // Whole cache lines in every dtype: products write such rows up to 1.4 times as fast.
  constexpr std::uint64_t kColumns = 64, kLeast = 2 * kColumns;
  const auto vocab = static_cast<std::uint64_t>(d.vocab), n = static_cast<std::uint64_t>(tokens);
  const std::uint64_t elems = std::max(kAlwaysFine, 4 * n * static_cast<std::uint64_t>(d.hidden));
  const std::uint64_t parts = div_ceil(vocab, std::max(elems / n, kLeast));
  if (parts == 1) return d.vocab;
  return static_cast<std::int64_t>(std::max(round_down(vocab / parts, kColumns), kLeast));
}

std::int64_t auto_mlp_chunk(const Decoder& d, std::int64_t tokens) {
  constexpr std::uint64_t kAlwaysFine = 8192;
  const auto n = static_cast<std::uint64_t>(tokens);
  const std::uint64_t most = std::max(kAlwaysFine, 4 * static_cast<std::uint64_t>(d.hidden));
  const std::uint64_t parts = div_ceil(n, most);
  return parts == 1 ? tokens : static_cast<std::int64_t>(round_up(div_ceil(n, parts), 16));
}

}  // namespace sluice::shape
