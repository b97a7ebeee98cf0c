/// model.safetensors.index.json: which of several files holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/base/units.h"

namespace sluice::checkpoint {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

/// Tensor name -> file name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// Throws kFormat, naming `file`, when it is no such list or points outside its folder.
WeightMap parse_index(std::string_view text, std::string_view file);

std::string make_index(const WeightMap& weights, Bytes total_size);

/// "model.safetensors", or "model-00002-of-00003.safetensors" (counted from 1).
std::string shard_name(std::size_t shard, std::size_t shards);

}  // namespace sluice::checkpoint
