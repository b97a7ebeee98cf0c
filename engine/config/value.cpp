#include "engine/config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace sluice::config {
namespace {

constexpr std::size_t kMostShown = 60;

/// The length of the UTF-8 sequence at the front of `text`, 0 when it is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);  // overlong forms, surrogates, beyond U+10FFFF
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
      (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return length;
}

/// `from`: where in `path` the part begins that is looked up in `root`.
ValuePtr replaced_below(const ValuePtr& root, std::string_view path, std::size_t from,
                        ValuePtr value) {
  const std::size_t dot = path.find('.', from);
  const std::string key(path.substr(from, dot - from));
  Value map;
  map.kind = Value::Kind::kMap;
  map.where = value->where;
  if (root && root->kind != Value::Kind::kNull) {
    SLUICE_CHECK(root->kind == Value::Kind::kMap, kConfig,
                 fmt::format("{} {}: cannot be set; {} is {}, no section", value->where,
                             shown(path), shown(path.substr(0, from - 1)), shown(*root)));
    map = *root;
  }
  const auto found =
      std::ranges::find_if(map.entries, [&](const Entry& e) { return e.key == key; });
  const ValuePtr old = found == map.entries.end() ? nullptr : found->value;
  const std::string where = value->where;
  ValuePtr next = dot == std::string_view::npos
                      ? std::move(value)
                      : replaced_below(old, path, dot + 1, std::move(value));
  if (found == map.entries.end()) {
    map.entries.push_back({key, where, std::move(next)});
  } else {
    if (dot == std::string_view::npos) found->where = where;  // all of it is new
    found->value = std::move(next);
  }
  return std::make_shared<const Value>(std::move(map));
}

}  // namespace

ValuePtr replaced(const ValuePtr& root, std::string_view path, ValuePtr value) {
  return replaced_below(root, path, 0, std::move(value));
}

void fail(const std::string& where, const std::string& reason) {
  throw Error(Errc::kConfig, fmt::format("{}: {}", where, reason));
}

std::string shown(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (i >= kMostShown) return out + "...";
    const std::size_t length = utf8_length(text.substr(i));
    const bool printable =
        length > 1 || (length == 1 && static_cast<unsigned char>(text[i]) >= 0x20);
    if (printable) {
      out += text.substr(i, length);
    } else {
      out += '?';
    }
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kPlain:
      return shown(value.text);
    case Value::Kind::kQuoted:
      return fmt::format("\"{}\"", shown(value.text));
    case Value::Kind::kList:
      return fmt::format("a list of {}", value.items.size());
    case Value::Kind::kMap:
      return fmt::format("a map of {}", value.entries.size());
  }
  return {};
}

std::optional<std::string> not_text(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    // Control characters are not only unprintable: yaml-cpp takes 0x04 for the end of the file.
    const bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r';
    if (length == 0 || control) {
      return fmt::format("byte 0x{:02x} at offset {} is no UTF-8 text", byte, i);
    }
    i += length;
  }
  return std::nullopt;
}

}  // namespace sluice::config
