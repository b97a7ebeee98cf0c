/// A small model, and weights that say which element of it each of them is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/shape/family.h"
#include "engine/shape/model.h"
#include "engine/zero/layout.h"

namespace sluice::checkpoint {

inline shape::Model small_model(std::string_view family) {
  shape::Decoder d = shape::find_family(family).base;
  d.vocab = 130;
  d.hidden = 24;
  d.layers = 2;
  d.heads = d.kv_heads = 2;
  d.head_dim = 12;
  d.intermediate = 50;
  d.max_positions = 33;
  d.tied_embeddings = family == "gpt2";
  return shape::make_model(d);
}

/// A number that says which element of the model it is: exact in fp32, not in bf16.
inline float value_of(std::size_t segment, std::uint64_t elem) {
  return static_cast<float>(segment * 100000 + elem) * 0.25F - 3000.0F;
}

inline std::vector<float> flat(const shape::Model& model, std::size_t segment) {
  std::vector<float> values(zero::make_layout(model.segments[segment]).elems);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(segment, i);
  return values;
}

}  // namespace sluice::checkpoint
