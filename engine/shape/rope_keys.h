/// The rotary angles in a config.json: version 5 of transformers writes rope_parameters, version 4
/// rope_theta, and rope_scaling where positions are scaled.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "engine/shape/config_keys.h"
#include "engine/shape/decoder.h"

namespace sluice::shape {

/// `max_positions`: of the model.
Rope read_rope(ConfigKeys& keys, std::int64_t max_positions);
/// As both versions read it.
void write_rope(const Rope& rope, nlohmann::json& config);

}  // namespace sluice::shape
