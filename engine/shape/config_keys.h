/// The keys of one object of a config.json: typed look-ups that remember what was asked for, so
/// that no key which may change the maths goes unread.
///
/// Throws  kConfig naming the key, its value and what to write
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "engine/shape/family.h"

namespace sluice::shape {

class ConfigKeys {
 public:
  /// `values` must outlive this. `where` names the object in messages.
  ConfigKeys(const nlohmann::json& values, std::string where);

  /// With null too.
  bool has(std::string_view key) const;
  /// Null when the key is absent or null.
  const nlohmann::json* find(std::string_view key);

  std::optional<std::int64_t> whole(std::string_view key);
  std::optional<double> real(std::string_view key);
  bool flag(std::string_view key, bool absent);
  std::optional<std::string> text(std::string_view key);
  /// Of a table whose rows have a `name` and a `value`: the value of the row that the key names.
  /// Refuses any other name, with those that there are.
  template <class Rows>
  auto choice(std::string_view key, const Rows& rows) {
    std::optional<decltype(rows[0].value)> chosen;
    const auto given = text(key);
    if (!given) return chosen;
    std::string known;
    for (const auto& row : rows) {
      if (row.name == *given) chosen = row.value;
      known += known.empty() ? "" : ", ";
      known += row.name;
    }
    if (!chosen) refuse_name(key, *given, known);
    return chosen;
  }
  /// Refuses any other value.
  void only(const FixedKey& row);

  /// Call last: whatever nobody asked for is refused, unless it is harmless.
  void refuse_the_rest() const;

  [[noreturn]] void missing(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const nlohmann::json& value,
                           const std::string& reason) const;
  [[noreturn]] void refuse_name(std::string_view key, const std::string& name,
                                const std::string& known) const;
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json& values_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

nlohmann::json to_json(const std::variant<bool, std::int64_t, double>& value);

}  // namespace sluice::shape
