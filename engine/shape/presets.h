/// Models with a name, for `model.preset`.
#pragma once

#include <span>
#include <string_view>

#include "engine/shape/decoder.h"

namespace sluice::shape {

struct Preset {
  std::string_view name;
  Decoder decoder;
};

/// tiny, gpt2-124m, llama-1b, llama-8b.
std::span<const Preset> presets();

/// Throws kConfig with the known names.
const Decoder& find_preset(std::string_view name);

}  // namespace sluice::shape
