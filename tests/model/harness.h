/// Small decoders, random weights for one block, and poisoned places for what an op writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/model/documents.h"
#include "engine/model/kernel.h"
#include "engine/model/params.h"
#include "engine/shape/model.h"
#include "reference.h"

namespace sluice::model {

/// Where the room's functions compute: the host, or the first CUDA device, on a stream of its own.
/// Every tensor made here lies there.
at::Device device();

/// gpt2, llama, and what neither has: fused grouped queries, gated GELU with biases, normed heads,
/// a window.
std::vector<std::string> decoder_names();
shape::Decoder decoder_named(const std::string& name);

/// A contiguous tensor full of NaN, which what an op does not write would keep. It begins so many
/// bytes after the begin of a page.
at::Tensor poisoned(at::IntArrayRef sizes, at::ScalarType dtype, Bytes past_page = 0);
/// The same values at such a place.
at::Tensor placed(const at::Tensor& t, Bytes past_page);

/// The weights of one block and where its gradients go; notes which gradients were asked for.
class BlockParams : public ParamSource, public GradSink {
 public:
  BlockParams(const shape::Decoder& decoder, shape::BlockKind kind, at::ScalarType dtype,
              Bytes past_page = 0);

  at::Tensor weight(shape::Role role) const override { return weights_.at(role); }
  at::Tensor gradient(shape::Role role) override {
    asked_.push_back(role);
    return gradients_.at(role);
  }

  const std::map<shape::Role, at::Tensor>& gradients() const { return gradients_; }
  const std::vector<shape::Role>& asked() const { return asked_; }
  reference::Weights for_reference() const;

 private:
  std::map<shape::Role, at::Tensor> weights_, gradients_;
  std::vector<shape::Role> asked_;
};

/// One fp64: what goes into an op, or NaN where it writes one.
at::Tensor number(double value);
at::Tensor unknown_number();

at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed);
/// Rows that are one document each, and rows of several, the shortest of one token.
at::Tensor plain_positions(std::int64_t batch, std::int64_t seq);
at::Tensor document_positions(std::int64_t batch, std::int64_t seq);
/// As a host knows them by their positions.
Places places_of(const at::Tensor& positions);
at::Tensor random_tokens(at::IntArrayRef sizes, std::int64_t vocab, std::uint64_t seed);

/// Attention with all scores at once, in the heads' own type. `window` 0: all tokens before.
at::Tensor all_scores(const Heads& heads, std::int64_t window);

/// |a - b| / |b|, in the 2-norm. NaN anywhere in `a` gives NaN, which is below no bound.
double relative_error(const at::Tensor& a, const at::Tensor& b);
/// The same bytes, NaN and the sign of zero included.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace sluice::model
