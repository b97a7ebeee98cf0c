/// A file of YAML or JSON as a tree of values with their places, before anything has a type.
/// Size, depth and aliases are bounded.
///
/// Throws  kConfig: "file:line:col: reason"; `file` is what messages call it
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/config/value.h"

namespace sluice::config {

inline constexpr std::size_t kDeepestDocument = 32;

/// At most one byte more than a document may have: enough to see that it is too large. Waits for no
/// FIFO.
std::string read_document(const std::string& file);

/// Null when there is nothing but comments. Refuses equal keys in a map, tags, merges and tabs.
ValuePtr parse_yaml(std::string_view text, const std::string& file);

/// Strict JSON (no comments, no NaN); equal keys are refused too. Numbers keep their spelling.
ValuePtr parse_json(std::string_view text, const std::string& file);

}  // namespace sluice::config
