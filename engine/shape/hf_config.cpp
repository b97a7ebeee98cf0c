#include "engine/shape/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/shape/family.h"

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

// Of generation, of other heads, of the writer: nothing that training a language model looks at.
constexpr std::array<std::string_view, 33> kHarmless = {
    "_attn_implementation",
    "_name_or_path",
    "architectures",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "is_encoder_decoder",
    "label2id",
    "max_length",
    "n_ctx",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "prefix",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "use_cache",
};

/// The keys of one object: typed look-ups that remember what was asked for.
class Keys {
 public:
  Keys(const json& values, std::string where) : values_(values), where_(std::move(where)) {
    if (!values.is_object()) {
      throw Error(Errc::kConfig,
                  fmt::format("{}: is {}, not a table of keys; write the keys of a config.json",
                              where_, values.dump()));
    }
  }

  /// Null when the key is absent or null.
  const json* find(std::string_view key) {
    known_.emplace(key);
    const auto at = values_.find(std::string(key));
    return at == values_.end() || at->is_null() ? nullptr : &*at;
  }

  std::optional<std::int64_t> whole(std::string_view key) {
    const json* v = find(key);
    if (v == nullptr) return std::nullopt;
    if (!v->is_number_integer()) refuse(key, *v, "write a whole number");
    if (v->is_number_unsigned() && v->get<std::uint64_t>() > kMost) {
      refuse(key, *v, fmt::format("it is out of range; write at most {}", kMost));
    }
    return v->get<std::int64_t>();
  }

  double real(std::string_view key, double absent) {
    const json* v = find(key);
    if (v == nullptr) return absent;
    if (!v->is_number()) refuse(key, *v, "write a number");
    return v->get<double>();
  }

  bool flag(std::string_view key, bool absent) {
    const json* v = find(key);
    if (v == nullptr) return absent;
    if (!v->is_boolean()) refuse(key, *v, "write true or false");
    return v->get<bool>();
  }

  std::optional<std::string> text(std::string_view key) {
    const json* v = find(key);
    if (v == nullptr) return std::nullopt;
    if (!v->is_string()) refuse(key, *v, "write a name");
    return v->get<std::string>();
  }

  void only(const FixedKey& row) {
    const json* v = find(row.key);
    if (v == nullptr) return;
    const json wanted = to_json(row.value);
    if (*v == wanted) return;  // 0 is 0.0, but 1 is not true
    refuse(row.key, *v, fmt::format("only {} is built; write that", wanted.dump()));
  }

  /// Call last: whatever nobody asked for is refused, unless it is harmless.
  void refuse_the_rest() const {
    for (const auto& [key, value] : values_.items()) {
      if (known_.contains(key) || value.is_null()) continue;
      if (std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end()) continue;
      throw Error(Errc::kConfig,
                  fmt::format("{}.{}: {} is not understood, and may change the maths; remove the "
                              "key (read here: {})",
                              where_, key, value.dump(), fmt::join(known_, ", ")));
    }
  }

  [[noreturn]] void missing(std::string_view key) const {
    throw Error(Errc::kConfig, fmt::format("{}.{}: is missing; add it", where_, key));
  }
  [[noreturn]] void refuse(std::string_view key, const json& value,
                           const std::string& reason) const {
    throw Error(Errc::kConfig,
                fmt::format("{}.{}: {} is refused: {}", where_, key, value.dump(), reason));
  }
  static json to_json(const std::variant<bool, std::int64_t, double>& value) {
    return std::visit([](auto v) { return json(v); }, value);
  }
  const std::string& where() const { return where_; }

 private:
  static constexpr auto kMost =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const json& values_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

void read_sizes(Keys& keys, const Family& family, Decoder& d) {
  for (const SizeKey& row : family.sizes) {
    const auto given = row.key.empty() ? std::nullopt : keys.whole(row.key);
    if (!given && row.absent == nullptr) keys.missing(row.key);
    d.*row.field = given ? *given : row.absent(d);
    // Later rows divide by this one.
    if (d.*row.field < 1 && given) keys.refuse(row.key, *given, "write at least 1");
  }
}

Activation read_activation(Keys& keys, const Family& family) {
  const auto name = keys.text(family.activation_key);
  if (!name) return family.base.activation;
  std::string known;
  for (const ActivationName& a : kActivations) {
    if (a.name == *name) return a.value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", a.name);
  }
  keys.refuse(family.activation_key, *name, fmt::format("choose one of {}", known));
}

/// The base of the rotary angles, from one of its objects: version 5 writes rope_parameters,
/// version 4 writes rope_scaling when positions are scaled.
std::optional<double> read_rope(Keys& keys, std::string_view key) {
  const json* object = keys.find(key);
  if (object == nullptr) return std::nullopt;
  Keys rope(*object, fmt::format("{}.{}", keys.where(), key));
  for (const std::string_view type_key : {"rope_type", "type"}) {
    const auto type = rope.text(type_key);
    if (type && *type != "default") {
      rope.refuse(type_key, *type, "scaled positions are not built; only default is");
    }
  }
  rope.only({"partial_rotary_factor", 1.0});
  const bool given = rope.find("rope_theta") != nullptr;
  const double theta = rope.real("rope_theta", 0.0);
  rope.refuse_the_rest();
  return given ? std::optional(theta) : std::nullopt;
}

double read_rope_theta(Keys& keys) {
  std::optional<double> theta;
  const json* flat = keys.find("rope_theta");
  if (flat != nullptr) theta = keys.real("rope_theta", 0.0);
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const auto nested = read_rope(keys, key);
    if (theta && nested && *theta != *nested) {
      keys.refuse("rope_theta", json(*theta),
                  fmt::format("{} says {}; write one of them", key, *nested));
    }
    if (nested) theta = nested;
  }
  return theta.value_or(Decoder{}.rope_theta);
}

}  // namespace

Decoder from_config(const json& values, std::string_view where) {
  Keys keys(values, std::string(where));
  const auto type = keys.text("model_type");
  if (!type) keys.missing("model_type");
  const Family& family = find_family(*type, where);

  Decoder d = family.base;
  read_sizes(keys, family, d);
  for (const RealKey& row : family.reals) d.*row.field = keys.real(row.key, row.absent);
  for (const FlagKey& row : family.flags) d.*row.field = keys.flag(row.key, row.absent);
  for (const FixedKey& row : family.fixed) keys.only(row);
  d.activation = read_activation(keys, family);
  if (d.positions == Positions::kRotary) d.rope_theta = read_rope_theta(keys);
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
  for (const FixedKey& row : family.fixed) out[std::string(row.key)] = Keys::to_json(row.value);
  for (const ActivationName& a : kActivations) {
    if (a.value != decoder.activation) continue;
    out[std::string(family.activation_key)] = a.name;
    break;
  }
  if (decoder.positions == Positions::kRotary) {
    out["rope_theta"] = decoder.rope_theta;
    out["rope_parameters"] = {{"rope_theta", decoder.rope_theta}, {"rope_type", "default"}};
  }
  SLUICE_CHECK(from_config(out) == decoder, kConfig,
               fmt::format("a config.json of family {} cannot say what this model is: its "
                           "attention, biases or norms are not those of the family",
                           decoder.family));
  return out;
}

}  // namespace sluice::shape
