/// The one table of keys. Parser, errors, overrides, schema, reference and resolved file all come
/// from it: a key that is not here does not exist.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/config.h"
#include "engine/config/scalars.h"

namespace sluice::config {

inline constexpr std::int64_t kMostBatch = 1 << 30;  ///< samples

struct Field {
  std::string path;   ///< "aio.queue_depth"
  std::string takes;  ///< type, unit and range in words
  std::string doc;
  std::vector<std::string> aliases;  ///< full paths: read with a warning, never written
  nlohmann::json schema;
  std::function<void(Config&, const Value&, const Context&)> read;
  std::function<nlohmann::json(const Config&)> write;  ///< of Config{}: the default
};

/// In the order of the reference; the keys of a section stand together.
const std::vector<Field>& fields();

/// Their paths.
std::vector<std::string> known_paths();
/// The field of this path or alias; null when there is none.
const Field* find_field(std::string_view path);
/// Whether keys begin with "path.".
bool is_section(std::string_view path);

}  // namespace sluice::config
