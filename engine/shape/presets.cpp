#include "engine/shape/presets.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/shape/family.h"

namespace sluice::shape {
namespace {

struct Sizes {
  std::int64_t vocab, hidden, layers, heads, kv_heads, intermediate, max_positions;
};

Decoder make(std::string_view family, const Sizes& s) {
  Decoder d = find_family(family).base;
  d.vocab = s.vocab;
  d.hidden = s.hidden;
  d.layers = s.layers;
  d.heads = s.heads;
  d.kv_heads = s.kv_heads;
  d.head_dim = s.hidden / s.heads;
  d.intermediate = s.intermediate;
  d.max_positions = s.max_positions;
  return d;
}

std::vector<Preset> preset_table() {
  std::vector<Preset> rows = {
      // Bytes as tokens; small enough for a laptop without a GPU.
      {"tiny", make("gpt2", {256, 256, 8, 8, 8, 1024, 1024})},
      {"gpt2-124m", make("gpt2", {50257, 768, 12, 12, 12, 3072, 1024})},
      {"llama-1b", make("llama", {32000, 2048, 24, 16, 16, 5504, 4096})},
      {"llama-8b", make("llama", {128256, 4096, 32, 32, 8, 14336, 8192})},
  };
  rows[0].decoder.tied_embeddings = true;
  rows[1].decoder.tied_embeddings = true;
  rows[3].decoder.rope.theta = 500000.0;
  return rows;
}

}  // namespace

std::span<const Preset> presets() {
  static const std::vector<Preset> kRows = preset_table();
  return kRows;
}

const Decoder& find_preset(std::string_view name) {
  std::string known;
  for (const Preset& p : presets()) {
    if (p.name == name) return p.decoder;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", p.name);
  }
  throw Error(Errc::kConfig,
              fmt::format("model.preset: '{}' is not known; choose one of {}", name, known));
}

}  // namespace sluice::shape
