/// How a line of the field table is written. A private header of this room.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/field.h"
#include "engine/config/kind.h"

namespace sluice::config {

inline constexpr Bytes kMostBytes = Bytes{1} << 50;
inline constexpr std::int64_t kMostCount = 1'000'000'000'000'000;

/// `members` lead from Config to the value: &Config::aio, &nvme::Options::queue_depth.
template <class T, class... Members>
Field key(std::string path, Kind<T> kind, std::string doc, Members... members) {
  return {std::move(path),
          kind.takes,
          std::move(doc),
          {},
          kind.schema,
          [read = kind.read, members...](Config& c, const Value& v, const Context& at) {
            (c.*....*members) = read(v, at);
          },
          [write = kind.write, members...](const Config& c) { return write((c.*....*members)); }};
}

inline Field also(Field field, std::vector<std::string> aliases) {
  field.aliases = std::move(aliases);
  return field;
}

/// precision, optimizer, scheduler and compute: what the numbers of a run are made of.
std::vector<Field> numeric_fields();

/// tiers, aio, limits and watchdog: where bytes may lie, how they get there, and for how long.
std::vector<Field> storage_fields();

}  // namespace sluice::config
