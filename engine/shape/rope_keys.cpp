#include "engine/shape/rope_keys.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace sluice::shape {
namespace {

using nlohmann::json;

struct ScalingName {
  std::string_view name;
  RopeScaling value;
};
constexpr std::array kScalings = {
    ScalingName{"default", RopeScaling::kNone}, ScalingName{"linear", RopeScaling::kLinear},
    ScalingName{"dynamic", RopeScaling::kDynamic}, ScalingName{"llama3", RopeScaling::kLlama3},
    ScalingName{"yarn", RopeScaling::kYarn}};

double positive(ConfigKeys& keys, std::string_view key, double absent) {
  const double value = keys.real(key).value_or(absent);
  if (!(value > 0 && value <= 1e12)) keys.refuse(key, value, "write a number above 0, up to 1e12");
  return value;
}

double required(ConfigKeys& keys, std::string_view key) {
  if (keys.find(key) == nullptr) keys.missing(key);
  return positive(keys, key, 0);
}

RopeScaling read_scaling(ConfigKeys& keys) {
  // Older files have the first; where both stand the second holds.
  const auto old = keys.choice("type", kScalings);
  return keys.choice("rope_type", kScalings).value_or(old.value_or(RopeScaling::kNone));
}

/// What the cosines of Yarn are multiplied by where the file does not say.
double usual_attention_factor(ConfigKeys& keys, double factor) {
  const auto part = [&](double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
  };
  const double scale = keys.real("mscale").value_or(0);
  const double scale_of_all = keys.real("mscale_all_dim").value_or(0);
  return scale != 0 && scale_of_all != 0 ? part(scale) / part(scale_of_all) : part(1);
}

/// One of the objects. `theta`: where it does not say.
Rope read_object(ConfigKeys& keys, double theta, std::int64_t max_positions) {
  Rope rope;
  rope.theta = positive(keys, "rope_theta", theta);
  rope.scaling = read_scaling(keys);
  keys.only({"partial_rotary_factor", 1.0});
  const auto original = [&] {
    const auto given = keys.whole("original_max_position_embeddings");
    if (given && *given < 1) {
      keys.refuse("original_max_position_embeddings", *given, "write at least 1");
    }
    return given.value_or(max_positions);
  };
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
    case RopeScaling::kDynamic:
      rope.factor = required(keys, "factor");
      break;
    case RopeScaling::kLlama3:
      rope.factor = required(keys, "factor");
      rope.low_freq_factor = required(keys, "low_freq_factor");
      rope.high_freq_factor = required(keys, "high_freq_factor");
      rope.original_positions = original();
      if (rope.high_freq_factor <= rope.low_freq_factor) {
        keys.refuse("high_freq_factor", rope.high_freq_factor, "it must be above low_freq_factor");
      }
      break;
    case RopeScaling::kYarn:
      rope.original_positions = original();
      rope.factor = positive(
          keys, "factor",
          static_cast<double>(max_positions) / static_cast<double>(rope.original_positions));
      rope.attention_factor =
          positive(keys, "attention_factor", usual_attention_factor(keys, rope.factor));
      rope.beta_fast = positive(keys, "beta_fast", rope.beta_fast);
      rope.beta_slow = positive(keys, "beta_slow", rope.beta_slow);
      rope.truncate = keys.flag("truncate", true);
      if (rope.theta <= 1) keys.refuse("rope_theta", rope.theta, "yarn asks for more than 1");
      break;
  }
  keys.refuse_the_rest();
  return rope;
}

}  // namespace

Rope read_rope(ConfigKeys& keys, std::int64_t max_positions) {
  const double theta = positive(keys, "rope_theta", Rope{}.theta);
  const bool flat = keys.find("rope_theta") != nullptr;
  Rope rope;
  rope.theta = theta;
  bool nested = false;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const json* object = keys.find(key);
    if (object == nullptr) continue;
    ConfigKeys inner(*object, fmt::format("{}.{}", keys.where(), key));
    const Rope read = read_object(inner, theta, max_positions);
    if (flat && read.theta != theta) {
      keys.refuse("rope_theta", theta,
                  fmt::format("{} says {}; write one of them", key, read.theta));
    }
    if (nested && read != rope) {
      keys.refuse(key, *object, "rope_parameters says something else; write one of them");
    }
    rope = read;
    nested = true;
  }
  return rope;
}

void write_rope(const Rope& rope, json& config) {
  json object = {{"rope_theta", rope.theta}};
  for (const ScalingName& row : kScalings) {
    if (row.value == rope.scaling) object["rope_type"] = row.name;
  }
  if (rope.scaling != RopeScaling::kNone) object["factor"] = rope.factor;
  if (rope.original_positions != 0) {
    object["original_max_position_embeddings"] = rope.original_positions;
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    object["low_freq_factor"] = rope.low_freq_factor;
    object["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.scaling == RopeScaling::kYarn) {
    object["attention_factor"] = rope.attention_factor;
    object["beta_fast"] = rope.beta_fast;
    object["beta_slow"] = rope.beta_slow;
    object["truncate"] = rope.truncate;
  }
  config["rope_theta"] = rope.theta;
  config["rope_parameters"] = object;
  // Version 4 reads the angles from here, and complains of those of no scaling.
  if (rope.scaling != RopeScaling::kNone) config["rope_scaling"] = object;
}

}  // namespace sluice::shape
