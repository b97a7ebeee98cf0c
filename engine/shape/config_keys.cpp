#include "engine/shape/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"

namespace sluice::shape {
namespace {

using nlohmann::json;

constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// Of generation, of other heads, of the writer: nothing that training a language model looks at.
constexpr std::string_view kHarmless[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "_num_labels",
    "architectures",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_encoder_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "max_sequence_length",
    "min_length",
    "n_ctx",
    "n_special",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "predict_special_tokens",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

}  // namespace

ConfigKeys::ConfigKeys(const json& values, std::string where)
    : values_(values), where_(std::move(where)) {
  if (!values.is_object()) {
    throw Error(Errc::kConfig,
                fmt::format("{}: is {}, not a table of keys; write the keys of a config.json",
                            where_, values.dump()));
  }
}

bool ConfigKeys::has(std::string_view key) const {
  return values_.contains(key);
}

const json* ConfigKeys::find(std::string_view key) {
  known_.emplace(key);
  const auto at = values_.find(std::string(key));
  return at == values_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<std::int64_t> ConfigKeys::whole(std::string_view key) {
  const json* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number_integer()) refuse(key, *v, "write a whole number");
  if (v->is_number_unsigned() && v->get<std::uint64_t>() > kMost) {
    refuse(key, *v, fmt::format("it is out of range; write at most {}", kMost));
  }
  return v->get<std::int64_t>();
}

std::optional<double> ConfigKeys::real(std::string_view key) {
  const json* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number()) refuse(key, *v, "write a number");
  return v->get<double>();
}

bool ConfigKeys::flag(std::string_view key, bool absent) {
  const json* v = find(key);
  if (v == nullptr) return absent;
  if (!v->is_boolean()) refuse(key, *v, "write true or false");
  return v->get<bool>();
}

std::optional<std::string> ConfigKeys::text(std::string_view key) {
  const json* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_string()) refuse(key, *v, "write a name");
  return v->get<std::string>();
}

void ConfigKeys::only(const FixedKey& row) {
  const json* v = find(row.key);
  if (v == nullptr) return;
  const json wanted = to_json(row.value);
  if (*v == wanted) return;  // 0 is 0.0, but 1 is not true
  refuse(row.key, *v, fmt::format("only {} is built; write that", wanted.dump()));
}

void ConfigKeys::refuse_the_rest() const {
  for (const auto& [key, value] : values_.items()) {
    if (known_.contains(key) || value.is_null()) continue;
    if (std::ranges::find(kHarmless, key) != std::end(kHarmless)) continue;
    throw Error(Errc::kConfig,
                fmt::format("{}.{}: {} is not built, and may change the maths; remove the "
                            "key only if the weights were made without it (read here: {})",
                            where_, key, value.dump(), fmt::join(known_, ", ")));
  }
}

void ConfigKeys::missing(std::string_view key) const {
  throw Error(Errc::kConfig, fmt::format("{}.{}: is missing; add it", where_, key));
}

void ConfigKeys::refuse(std::string_view key, const json& value, const std::string& reason) const {
  throw Error(Errc::kConfig,
              fmt::format("{}.{}: {} is refused: {}", where_, key, value.dump(), reason));
}

void ConfigKeys::refuse_name(std::string_view key, const std::string& name,
                             const std::string& known) const {
  refuse(key, name, fmt::format("choose one of {}", known));
}

json to_json(const std::variant<bool, std::int64_t, double>& value) {
  return std::visit([](auto v) { return json(v); }, value);
}

}  // namespace sluice::shape
