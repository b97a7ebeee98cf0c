/// A parsed document before it has types: what was written, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

struct Value;
using ValuePtr = std::shared_ptr<const Value>;  ///< an alias shares the node of its anchor

struct Entry {
  std::string key;
  std::string where;  ///< of the key: "run.yaml:14:5", or "command line"
  ValuePtr value;
};

struct Value {
  enum class Kind : std::uint8_t { kNull, kPlain, kQuoted, kList, kMap };

  Kind kind = Kind::kNull;
  std::string where;
  std::string text;             ///< of kPlain and kQuoted, as written: nothing is guessed from it
  std::vector<ValuePtr> items;  ///< of kList
  std::vector<Entry> entries;   ///< of kMap, in the order of the file; keys are unique
  std::size_t nodes = 1;        ///< with every alias written out

  bool is_text() const { return kind == Kind::kPlain || kind == Kind::kQuoted; }
};

/// `root` with the value at the dotted `path` replaced; missing sections are made.
/// Throws kConfig where a section of the path is no map.
ValuePtr replaced(const ValuePtr& root, std::string_view path, ValuePtr value);

/// Throws kConfig: what is wrong, and where.
[[noreturn]] void fail(const std::string& where, const std::string& reason);

/// At most 60 characters of `text`, for messages; no control characters.
std::string shown(std::string_view text);
std::string shown(const Value& value);

/// Why `text` is no text that YAML can hold (binary, a wrong encoding), with the byte offset;
/// nullopt where all is well.
std::optional<std::string> not_text(std::string_view text);

}  // namespace sluice::config
