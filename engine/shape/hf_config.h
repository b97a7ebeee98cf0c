/// The config.json of a Hugging Face model, read and written.
///
/// Throws  kConfig naming `where`.KEY, the value, the reason and the fix: a key that is missing,
///         has the wrong type or is out of range, a key that changes the maths in a way that is not
///         built, a key that nobody knows. Keys that change nothing in training (use_cache, dtype,
///         token ids, ...) are accepted; null means absent
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "engine/shape/decoder.h"

namespace sluice::shape {

/// `values` is the object of a config.json, or the same keys written in a run file.
Decoder from_config(const nlohmann::json& values, std::string_view where = "model.config");

/// What transformers loads, versions 4 and 5 alike; from_config() gives `decoder` back.
nlohmann::json to_config_json(const Decoder& decoder);

}  // namespace sluice::shape
