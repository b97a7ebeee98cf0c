/// What the field table says, for people, editors and the next load.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/config/field.h"

namespace sluice::config {

/// A key of a run file, as Field::write gives its value.
struct Line {
  const Field* field;
  nlohmann::json value;
  std::string comment = {};  ///< above the key; empty: none
};

/// A run file of these keys, in the order of the reference. Throws kConfig: a value is not UTF-8.
std::string to_yaml(std::vector<Line> lines);

/// `text` as lines of YAML comments, each behind `indent` spaces.
std::string comment_lines(const std::string& text, std::size_t indent = 0);

/// Every key with its value (config.resolved.yaml). Loads back to the same Config; the text is the
/// same for equal Configs.
std::string to_yaml(const Config& config);

/// Every key with its value, as JSON.
std::map<std::string, std::string> values_of(const Config& config);

/// JSON Schema (draft 7) of the run file: completion and checks in editors.
std::string schema();

/// A cell of a table in Markdown.
std::string cell(std::string text);

/// docs/config.md.
std::string reference_markdown();

}  // namespace sluice::config
