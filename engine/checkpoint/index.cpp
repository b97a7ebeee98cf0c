#include "engine/checkpoint/index.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/checkpoint/json.h"

namespace sluice::checkpoint {
namespace {

/// Of a file in this folder: no path, nothing hidden, nothing that a system call would cut off.
bool is_plain_name(std::string_view name) {
  using namespace std::string_view_literals;
  return !name.empty() && name.front() != '.' && name.find_first_of("/\0"sv) == name.npos;
}

}  // namespace

WeightMap parse_index(std::string_view text, std::string_view file) {
  const nlohmann::json root = parse_bounded_json(text, file);
  const auto map = root.find("weight_map");
  SLUICE_CHECK(map != root.end() && map->is_object(), kFormat,
               fmt::format("{}: has no table weight_map", file));
  WeightMap weights;
  for (const auto& [tensor, value] : map->items()) {
    const auto* name = value.get_ptr<const std::string*>();
    SLUICE_CHECK(name != nullptr && is_plain_name(*name), kFormat,
                 fmt::format("{}: tensor '{}' is said to be in {}, which is no file beside it",
                             file, tensor, value.dump()));
    weights.emplace(tensor, *name);
  }
  return weights;
}

std::string make_index(const WeightMap& weights, Bytes total_size) {
  const nlohmann::json root = {{"metadata", {{"total_size", total_size}}}, {"weight_map", weights}};
  return root.dump(2) + "\n";
}

std::string shard_name(std::size_t shard, std::size_t shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

}  // namespace sluice::checkpoint
