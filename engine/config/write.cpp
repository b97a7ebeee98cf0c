#include "engine/config/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/config/value.h"

namespace sluice::config {
namespace {

using nlohmann::json;

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t dot = std::min(path.find('.', from), path.size());
    parts.emplace_back(path.substr(from, dot - from));
    from = dot + 1;
  }
  return parts;
}

/// Whether YAML reads `text` as this very string, or as a value that our readers take for it.
bool plain(const std::string& text) {
  constexpr auto kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/%-";
  constexpr std::array kNulls = {"null", "Null", "NULL"};
  return !text.empty() && text.find_first_not_of(kSafe) == std::string::npos &&
         text.front() != '-' && text.front() != '%' &&
         std::ranges::find(kNulls, text) == kNulls.end();
}

/// One line. Strings inside free maps are quoted: nothing else tells them from numbers there.
std::string flow(const json& value, bool free) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    return !free && plain(text) ? text : value.dump();
  }
  std::vector<std::string> inside;
  if (value.is_array()) {
    for (const json& item : value) inside.push_back(flow(item, free));
    return fmt::format("[{}]", fmt::join(inside, ", "));
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      inside.push_back(fmt::format("{}: {}", json(key).dump(), flow(item, true)));
    }
    return fmt::format("{{{}}}", fmt::join(inside, ", "));
  }
  return value.dump();
}

std::string yaml_line(const Field& f, const json& value, std::size_t depth) {
  const std::string indent(2 * depth, ' ');
  const std::string key = parts_of(f.path).back();
  if (!value.is_object() || value.empty()) {
    return fmt::format("{}{}: {}\n", indent, key, flow(value, false));
  }
  std::string out = fmt::format("{}{}:\n", indent, key);
  for (const auto& [name, item] : value.items()) {
    out += fmt::format("{}  {}: {}\n", indent, json(name).dump(), flow(item, true));
  }
  return out;
}

json& schema_of_section(json& root, const std::vector<std::string>& parts) {
  json* at = &root;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    at = &(*at)["properties"][parts[i]];
    (*at)["type"] = "object";
    (*at)["additionalProperties"] = false;
  }
  return *at;
}

constexpr std::string_view kOfTheRunFile = R"(# The run file

Written from the field table of `engine/config`; `ninja config_docs` writes it again.

One YAML file says everything about a run. Each key can be overridden on the command line by its full
name: `sluice train run.yaml train.steps=50 'data.train=[a.txt, b.txt]'`. A key that is not listed
here is an error, and so are keys given twice, `<<`, tags and tabs. Anchors and aliases work. Every
message says `file:line:col key: value: reason; fix`.

| type | how it is written |
| --- | --- |
| size | a number and B, KiB, MiB, GiB or TiB (K, KB and so on mean the same): `64MiB`. Never a bare number |
| count | `1000`, `1k`, `1.5M`, `2G`: thousands, not 1024 |
| fraction | `0.8` or `80%` |
| path | text in which `${name}` is the run's name and `${env:VARIABLE}` a variable of the environment. In data files `*` and `?` match names |
| auto | sluice decides; where the run's numbers depend on it (docs/design.md 4), `config.resolved.yaml` has what it came to |
| null | nothing, switched off |

Numbers are decimal, without quotes; bools are `true` and `false` only.
)";

}  // namespace

std::string comment_lines(const std::string& text, std::size_t indent) {
  const std::string begin = std::string(indent, ' ') + '#';
  std::istringstream lines(log::wrapped(text));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    out += fmt::format("{}{}{}\n", begin, line.empty() ? "" : " ", line);
  }
  return out;
}

std::string to_yaml(std::vector<Line> lines) {
  std::ranges::sort(lines, {}, &Line::field);  // the table is one array
  std::string out;
  std::vector<std::string> open;
  for (const Line& line : lines) {
    const std::vector<std::string> parts = parts_of(line.field->path);
    const std::vector<std::string> section(parts.begin(), parts.end() - 1);
    const auto shared =
        static_cast<std::size_t>(std::ranges::mismatch(open, section).in1 - open.begin());
    for (std::size_t i = shared; i < section.size(); ++i) {
      out += fmt::format("{}{}:\n", std::string(2 * i, ' '), section[i]);
    }
    open = section;
    if (!line.comment.empty()) out += comment_lines(line.comment, 2 * section.size());
    try {
      out += yaml_line(*line.field, line.value, section.size());
    } catch (const json::type_error&) {
      throw Error(
          Errc::kConfig,
          fmt::format("{}: {}: not UTF-8, which a run file is; rename it", line.field->path,
                      shown(line.value.dump(-1, ' ', false, json::error_handler_t::replace))));
    }
  }
  return out;
}

std::string to_yaml(const Config& config) {
  std::vector<Line> lines;
  for (const Field& f : fields()) lines.push_back({&f, f.write(config)});
  return to_yaml(std::move(lines));
}

std::map<std::string, std::string> values_of(const Config& config) {
  std::map<std::string, std::string> values;
  for (const Field& f : fields()) values[f.path] = f.write(config).dump();
  return values;
}

std::string schema() {
  json root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
               {"title", "sluice run file"},
               {"type", "object"},
               {"additionalProperties", false}};
  for (const Field& f : fields()) {
    json leaf = f.schema;
    leaf["description"] = fmt::format("{} ({})", f.doc, f.takes);
    leaf["default"] = f.write(Config{});
    schema_of_section(root, parts_of(f.path))["properties"][parts_of(f.path).back()] = leaf;
    for (const std::string& alias : f.aliases) {
      json other = f.schema;
      other["description"] = "another name of " + f.path;
      other["deprecated"] = true;
      schema_of_section(root, parts_of(alias))["properties"][parts_of(alias).back()] = other;
    }
  }
  return root.dump(2);
}

std::string cell(std::string text) {
  for (std::size_t i = text.find('|'); i != std::string::npos; i = text.find('|', i + 2)) {
    text.insert(i, "\\");
  }
  return text;
}

std::string reference_markdown() {
  std::string out(kOfTheRunFile);
  std::string section = "-";
  for (const Field& f : fields()) {
    const std::vector<std::string> parts = parts_of(f.path);
    const std::string here = parts.size() == 1 ? "" : parts.front();
    if (here != section) {
      out +=
          fmt::format("\n## {}\n\n| key | takes | default | meaning |\n| --- | --- | --- | --- |\n",
                      here.empty() ? "The run" : here);
      section = here;
    }
    std::string doc = f.doc;
    if (!f.aliases.empty()) doc += fmt::format(". Also read as {}", fmt::join(f.aliases, ", "));
    out += fmt::format("| `{}` | {} | `{}` | {} |\n", f.path, cell(f.takes),
                       flow(f.write(Config{}), false), cell(doc));
  }
  return out;
}

}  // namespace sluice::config
