#include "engine/config/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace sluice::config {
namespace {

constexpr std::size_t kLongestKey = 64;  // beyond it nobody made a slip

/// How many letters to put in, leave out, replace, or swap with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_above;
  std::vector<std::size_t> above;
  std::vector<std::size_t> row(b.size() + 1);  // [j]: from the first i of a to the first j of b
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_above = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, row[j - 1] + 1, above[j] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_above[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string_view leaf_of(std::string_view path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}

std::string_view section_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::string joined(std::string_view section, std::string_view leaf) {
  return section.empty() ? std::string(leaf) : fmt::format("{}.{}", section, leaf);
}

/// Every key and every section.
std::set<std::string> known_names(const std::vector<std::string>& keys) {
  std::set<std::string> names;
  for (const std::string& key : keys) {
    for (std::string_view p = key; !p.empty(); p = section_of(p)) names.emplace(p);
  }
  return names;
}

/// Of the names whose last part is `path`'s, the one whose whole path is most alike.
std::optional<std::string> namesake(std::string_view path, const std::set<std::string>& names) {
  std::optional<std::string> best;
  std::size_t least = 0;
  for (const std::string& name : names) {
    if (leaf_of(name) != leaf_of(path)) continue;
    const std::size_t distance = edit_distance(path, name);
    if (!best || distance < least) {
      best = name;
      least = distance;
    }
  }
  return best;
}

std::optional<std::string> meant(std::string_view path, const Value& value,
                                 const std::set<std::string>& names) {
  std::vector<std::string> siblings;
  for (const std::string& name : names) {
    if (section_of(name) == section_of(path)) siblings.emplace_back(leaf_of(name));
  }
  if (const auto sibling = nearest(leaf_of(path), siblings)) {
    return joined(section_of(path), *sibling);
  }
  if (auto same = namesake(path, names)) {
    const bool deeper = value.kind == Value::Kind::kMap && !value.entries.empty() &&
                        names.contains(joined(*same, value.entries.front().key));
    return deeper ? joined(*same, value.entries.front().key) : same;
  }
  if (value.kind == Value::Kind::kMap && !value.entries.empty()) {
    const std::string& child = value.entries.front().key;
    if (child.size() <= kLongestKey) return namesake(joined(path, child), names);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> nearest(std::string_view text,
                                   const std::vector<std::string>& candidates) {
  if (text.size() > kLongestKey) return std::nullopt;
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(1, text.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(text, candidate);
    if (distance >= least || distance >= candidate.size()) continue;
    best = candidate;
    least = distance;
  }
  return best;
}

std::string hint_for(std::string_view path, const Value& value,
                     const std::vector<std::string>& keys, std::string_view whole) {
  const std::set<std::string> names = known_names(keys);
  if (path.size() <= 4 * kLongestKey) {
    if (const auto name = meant(path, value, names)) return fmt::format("did you mean {}?", *name);
  }
  const std::string section(section_of(path));
  std::vector<std::string> here;
  for (const std::string& name : names) {
    if (section_of(name) == section) here.emplace_back(leaf_of(name));
  }
  return fmt::format("{} has {}", section.empty() ? whole : section, fmt::join(here, ", "));
}

}  // namespace sluice::config
