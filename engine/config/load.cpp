#include "engine/config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/config/document.h"
#include "engine/config/read.h"
#include "engine/config/value.h"
#include "engine/config/write.h"

namespace sluice::config {
namespace {

constexpr const char* kCommandLine = "command line";

/// An override's value. Only what begins like YAML is read as YAML, so that *.txt needs no quotes.
ValuePtr override_value(const std::string& path, const std::string& text) {
  if (text.find_first_of("[{\"'") == 0) {
    return parse_yaml(text, fmt::format("{} {}", kCommandLine, path));
  }
  Value v;
  v.kind = text == "null" || text == "~" ? Value::Kind::kNull : Value::Kind::kPlain;
  v.where = kCommandLine;
  v.text = text;
  return std::make_shared<const Value>(std::move(v));
}

ValuePtr with_override(const ValuePtr& root, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos) {
    fail(kCommandLine,
         fmt::format("{}: no value; write key=value, as train.steps=50", shown(text)));
  }
  if (not_text(text)) fail(kCommandLine, fmt::format("{}: no UTF-8 text", shown(path)));
  if (equals + 1 == text.size()) {
    fail(kCommandLine, fmt::format("{}: no value after '='; null unsets a key", shown(path)));
  }
  const bool whole = !path.empty() && path.front() != '.' && path.back() != '.' &&
                     path.find("..") == std::string::npos;
  const auto depth = static_cast<std::size_t>(std::ranges::count(path, '.'));
  if (!whole || depth >= kDeepestDocument) {
    fail(kCommandLine, fmt::format("{}: no key; write key=value, as train.steps=50", shown(text)));
  }
  return replaced(root, path, override_value(path, text.substr(equals + 1)));
}

}  // namespace

Config from_text(std::string_view text, std::span<const std::string> overrides,
                 const Environment& environment, const std::string& file) {
  ValuePtr root = parse_yaml(text, file);
  const bool empty = !root || root->kind == Value::Kind::kNull;
  if (empty && overrides.empty()) {
    fail(file, "is empty; a run file names at least a model and data");
  }
  if (!empty && root->kind != Value::Kind::kMap) {
    fail(root->where,
         fmt::format("{}: a run file is a map of keys, as `seed: 1337`", shown(*root)));
  }
  for (const std::string& text : overrides) root = with_override(root, text);
  return read_config(*root, environment, file);
}

Config load(const std::string& file, std::span<const std::string> overrides,
            const Environment& environment) {
  return from_text(read_document(file), overrides, environment, file);
}

Config with_name(Config config, const std::string& name) {
  config.name = name;
  Config named = from_text(to_yaml(config), {}, {}, "the run's name");
  named.warnings = std::move(config.warnings);
  return named;
}

}  // namespace sluice::config
