#include "harness.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/shape/family.h"

namespace sluice::model {
namespace {

using shape::Role;

shape::Decoder sized(shape::Decoder d) {
  d.vocab = 211;
  d.hidden = 60;
  d.layers = 1;
  d.heads = 6;
  d.head_dim = 10;
  d.intermediate = 101;
  d.max_positions = 64;
  return d;
}

shape::Decoder llama() {
  shape::Decoder d = sized(shape::find_family("llama").base);
  d.kv_heads = 2;
  return d;
}

shape::Decoder gpt2() {
  shape::Decoder d = sized(shape::find_family("gpt2").base);
  d.kv_heads = d.heads;
  d.tied_embeddings = true;
  return d;
}

// Rotary and grouped queries from one fused product, heads that do not add up to hidden.
shape::Decoder fused() {
  shape::Decoder d = gpt2();
  d.hidden = 63;
  d.heads = 9;
  d.kv_heads = 3;
  d.head_dim = 14;
  d.positions = shape::Positions::kRotary;
  d.activation = shape::Activation::kGelu;
  d.linear = shape::LinearLayout::kOutIn;
  d.attention_out_bias = false;
  d.tied_embeddings = false;
  return d;
}

// Gated GELU with every bias, tied.
shape::Decoder biased() {
  shape::Decoder d = llama();
  d.activation = shape::Activation::kGeluTanh;
  d.qkv_bias = d.mlp_bias = true;
  d.tied_embeddings = true;
  return d;
}

// Heads that are normed, and do not add up to hidden.
shape::Decoder normed() {
  shape::Decoder d = sized(shape::find_family("qwen3").base);
  d.kv_heads = 2;
  d.head_dim = 14;
  return d;
}

// A window that the tests' sequences do not fit into.
shape::Decoder windowed() {
  shape::Decoder d = llama();
  d.window = 11;
  return d;
}

std::uint64_t seed_of(Role role) {
  return 1000 + static_cast<std::uint64_t>(role);
}

// Gains near 1 and everything else such that activations stay near 1.
at::Tensor random_weight(const shape::TensorSpec& spec, at::ScalarType dtype) {
  at::Tensor t = random(spec.shape, at::kDouble, seed_of(spec.role));
  if (spec.shape.size() == 2) {
    t = t * 0.15;
  } else {
    t = t * 0.2 + (spec.init == shape::Init::kOnes ? 1.0 : 0.0);
  }
  return t.to(dtype);
}

}  // namespace

std::vector<std::string> decoder_names() {
  return {"llama", "gpt2", "fused", "biased", "normed", "windowed"};
}

shape::Decoder decoder_named(const std::string& name) {
  if (name == "llama") return llama();
  if (name == "gpt2") return gpt2();
  if (name == "normed") return normed();
  if (name == "windowed") return windowed();
  return name == "fused" ? fused() : biased();
}

at::Tensor poisoned(at::IntArrayRef sizes, at::ScalarType dtype, Bytes past_page) {
  constexpr Bytes kPage = 4096;
  const Bytes elem = c10::elementSize(dtype);
  const std::int64_t n = c10::multiply_integers(sizes);
  const auto room = n + static_cast<std::int64_t>((kPage + past_page) / elem);
  const at::Tensor flat = at::full({room}, std::numeric_limits<double>::quiet_NaN(),
                                   at::TensorOptions(dtype).device(device()));
  const auto begin = reinterpret_cast<std::uintptr_t>(flat.const_data_ptr());
  const Bytes skip = round_up(begin, kPage) - begin + past_page;
  return flat.narrow(0, static_cast<std::int64_t>(skip / elem), n).view(sizes);
}

at::Tensor placed(const at::Tensor& t, Bytes past_page) {
  return poisoned(t.sizes(), t.scalar_type(), past_page).copy_(t);
}

BlockParams::BlockParams(const shape::Decoder& decoder, shape::BlockKind kind, at::ScalarType dtype,
                         Bytes past_page) {
  const shape::Model model = shape::make_model(decoder);
  for (const shape::Block& block : model.blocks) {
    if (block.kind != kind) continue;
    for (const int s : block.segments) {
      for (const auto& spec : model.segments[static_cast<std::size_t>(s)].tensors) {
        weights_[spec.role] = placed(random_weight(spec, dtype), past_page);
        gradients_[spec.role] = poisoned(spec.shape, dtype, past_page);
      }
    }
  }
}

reference::Weights BlockParams::for_reference() const {
  reference::Weights weights;
  for (const auto& [role, t] : weights_) {
    weights[role] = t.to(at::kDouble).clone().requires_grad_(true);
  }
  return weights;
}

at::Tensor number(double value) {
  return at::full({}, value, at::TensorOptions(at::kDouble).device(device()));
}

at::Tensor unknown_number() {
  return number(std::numeric_limits<double>::quiet_NaN());
}

at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble))
      .to(dtype)
      .to(device());
}

at::Tensor plain_positions(std::int64_t batch, std::int64_t seq) {
  return at::arange(seq).expand({batch, seq}).contiguous().to(device());
}

at::Tensor document_positions(std::int64_t batch, std::int64_t seq) {
  at::Tensor positions = plain_positions(batch, seq);
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::int64_t begin = seq * (row + 1) / (batch + 2);
    positions[row].slice(0, begin) -= begin;
    positions[row].slice(0, begin + 1) -= 1;  // after a document of one token
  }
  return positions;
}

Places places_of(const at::Tensor& positions) {
  const at::Tensor on_host = positions.cpu();
  const auto* position = on_host.const_data_ptr<std::int64_t>();
  std::vector<std::int32_t> ends;
  for (std::int32_t at = 0; at < positions.numel(); ++at) {
    if (position[at] == 0 || at % positions.size(1) == 0) ends.push_back(at);
  }
  ends.push_back(static_cast<std::int32_t>(positions.numel()));
  Places places{positions, {documents_of(ends, positions.size(1)), {}}};
  if (device().is_cpu()) return places;
  const auto sizes = static_cast<std::int64_t>(ends.size());
  places.documents.ends =
      at::from_blob(ends.data(), {sizes}, at::TensorOptions(at::kInt)).to(device());
  return places;
}

at::Tensor random_tokens(at::IntArrayRef sizes, std::int64_t vocab, std::uint64_t seed) {
  return at::randint(0, vocab, sizes, at::detail::createCPUGenerator(seed),
                     at::TensorOptions(at::kLong))
      .to(device());
}

at::Tensor all_scores(const Heads& h, std::int64_t window) {
  const std::int64_t group = h.q.size(1) / h.k.size(1);
  const at::Tensor k = h.k.repeat_interleave(group, 1);
  const at::Tensor v = h.v.repeat_interleave(group, 1);
  const at::Tensor all = at::ones({h.q.size(2), h.q.size(2)}, h.q.options().dtype(at::kBool));
  at::Tensor unseen = all.triu(1);
  if (window > 0) unseen = unseen.logical_or(all.tril(-window));
  const double scale = std::sqrt(static_cast<double>(h.q.size(3)));
  const at::Tensor scores = at::matmul(h.q, k.transpose(2, 3)) / scale;
  return at::matmul(scores.masked_fill(unseen, -INFINITY).softmax(-1), v);
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor difference = a.detach().to(at::kDouble) - b.detach().to(at::kDouble);
  const double size = b.detach().to(at::kDouble).norm().item<double>();
  return difference.norm().item<double>() / std::max(size, 1e-300);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.nbytes() != b.nbytes() || !a.is_contiguous() || !b.is_contiguous()) return false;
  const at::Tensor here = a.cpu(), there = b.cpu();
  return std::memcmp(here.const_data_ptr(), there.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace sluice::model
