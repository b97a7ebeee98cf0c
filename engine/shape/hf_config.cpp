#include "engine/shape/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/shape/config_keys.h"
#include "engine/shape/family.h"
#include "engine/shape/rope_keys.h"

namespace sluice::shape {
namespace {

using nlohmann::json;

struct ActivationName {
  std::string_view name;
  Activation value;
};
// The first name of a value is the one that is written.
constexpr std::array kActivations = {
    ActivationName{"gelu", Activation::kGelu},
    ActivationName{"gelu_new", Activation::kGeluTanh},
    ActivationName{"gelu_pytorch_tanh", Activation::kGeluTanh},
    ActivationName{"silu", Activation::kSilu},
    ActivationName{"swish", Activation::kSilu},
};

void read_sizes(ConfigKeys& keys, const Family& family, Decoder& d) {
  for (const SizeKey& row : family.sizes) {
    const auto given = row.key.empty() ? std::nullopt : keys.whole(row.key);
    if (!given && row.absent == nullptr) keys.missing(row.key);
    const bool null = keys.has(row.key) && row.null != nullptr;
    d.*row.field = given ? *given : (null ? row.null : row.absent)(d);
    // Later rows divide by this one.
    if (d.*row.field < 1 && given) keys.refuse(row.key, *given, "write at least 1");
  }
}

void warn_of_dropout(ConfigKeys& keys, std::string_view key) {
  const double share = keys.real(key).value_or(0);
  if (!(share >= 0 && share < 1)) keys.refuse(key, share, "write a number from 0 to below 1");
  if (share > 0) {
    log::warning(
        fmt::format("{}.{}: {}: dropout is not built; trains without", keys.where(), key, share));
  }
}

/// transformers gives the input row of this token no gradient.
void warn_of_padding(ConfigKeys& keys) {
  const auto token = keys.whole("pad_token_id");
  if (!token || *token < 0) return;
  log::warning(
      fmt::format("{}.pad_token_id: {}: the embedding of this token is trained as any "
                  "other; transformers leaves it as it is",
                  keys.where(), *token));
}

/// Of the layers, how many have a window.
std::int64_t layers_with_window(ConfigKeys& keys, const WindowKey& row, std::int64_t layers) {
  std::int64_t first = 0;
  if (!row.first_layer.empty()) {
    first = keys.whole(row.first_layer).value_or(row.first_layer_absent);
  }
  const json* types = keys.find("layer_types");
  // As transformers: of a family whose layers are all alike the list says nothing.
  if (types == nullptr || row.first_layer.empty()) {
    return layers - std::clamp<std::int64_t>(first, 0, layers);
  }
  const auto windows = std::ranges::count(*types, json("sliding_attention"));
  if (!types->is_array() || std::ssize(*types) != layers ||
      windows + std::ranges::count(*types, json("full_attention")) != layers) {
    keys.refuse(
        "layer_types", *types,
        fmt::format("write a list of {}, each full_attention or sliding_attention", layers));
  }
  return windows;
}

/// How far attention reaches back; 0: over all positions.
std::int64_t read_window(ConfigKeys& keys, const Family& family, const Decoder& d) {
  const WindowKey& row = family.window;
  if (row.key.empty()) return 0;
  const bool off = !row.on.empty() && !keys.flag(row.on, false);
  const std::int64_t layers = layers_with_window(keys, row, d.layers);
  const auto given = keys.whole(row.key);
  if (given && *given < 1) keys.refuse(row.key, *given, "write at least 1, or null");
  const bool none = keys.has(row.key) && !given;
  if (off || none || layers == 0) return 0;
  const std::int64_t window = given.value_or(row.absent);
  if (layers != d.layers) {
    keys.refuse(row.key, window,
                fmt::format("{} of {} layers have it; only a window of all layers is built", layers,
                            d.layers));
  }
  return window;
}

void write_window(const WindowKey& row, std::int64_t window, json& out) {
  if (row.key.empty()) return;
  out[std::string(row.key)] = window > 0 ? json(window) : json(nullptr);
  if (!row.on.empty()) out[std::string(row.on)] = window > 0;
  if (!row.first_layer.empty()) out[std::string(row.first_layer)] = 0;
}

}  // namespace

Decoder from_config(const json& values, std::string_view where) {
  ConfigKeys keys(values, std::string(where));
  const auto type = keys.text("model_type");
  if (!type) keys.missing("model_type");
  const Family& family = find_family(*type, where);

  Decoder d = family.base;
  read_sizes(keys, family, d);
  for (const RealKey& row : family.reals) d.*row.field = keys.real(row.key).value_or(row.absent);
  for (const FlagKey& row : family.flags) d.*row.field = keys.flag(row.key, row.absent);
  for (const FixedKey& row : family.fixed) keys.only(row);
  for (const std::string_view key : family.dropouts) warn_of_dropout(keys, key);
  d.activation = keys.choice(family.activation_key, kActivations).value_or(family.base.activation);
  d.window = read_window(keys, family, d);
  if (family.padding) warn_of_padding(keys);
  if (d.positions == Positions::kRotary) d.rope = read_rope(keys, d.max_positions);
  keys.refuse_the_rest();
  check(d, where);
  return d;
}

json to_config_json(const Decoder& decoder) {
  const Family& family = find_family(decoder.family);
  json out = {
      {"architectures", json::array({family.architecture})},
      {"model_type", family.model_type},
      {"use_cache", true},
      // transformers would otherwise assume those of the family's first model.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
  for (const SizeKey& row : family.sizes) {
    if (!row.key.empty()) out[std::string(row.key)] = decoder.*row.field;
  }
  for (const RealKey& row : family.reals) out[std::string(row.key)] = decoder.*row.field;
  for (const FlagKey& row : family.flags) out[std::string(row.key)] = decoder.*row.field;
  for (const FixedKey& row : family.fixed) out[std::string(row.key)] = to_json(row.value);
  for (const std::string_view key : family.dropouts) out[std::string(key)] = 0.0;
  write_window(family.window, decoder.window, out);
  for (const ActivationName& a : kActivations) {
    if (a.value != decoder.activation) continue;
    out[std::string(family.activation_key)] = a.name;
    break;
  }
  if (decoder.positions == Positions::kRotary) {
    write_rope(decoder.rope, out);
  }
  SLUICE_CHECK(from_config(out) == decoder, kConfig,
               fmt::format("a config.json of family {} cannot say what this model is: its "
                           "attention, biases or norms are not those of the family",
                           decoder.family));
  return out;
}

}  // namespace sluice::shape
