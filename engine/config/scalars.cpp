#include "engine/config/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "engine/base/error.h"

namespace sluice::config {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::size_t kLongestNumber = 64;
/// YAML reads no key of more than 1024 characters on one line, and a byte may be written as six.
constexpr std::size_t kLongestFreeKey = 128;

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kDigits) == std::string_view::npos;
}

/// The text of something that is a number: quotes would make it a string everywhere else.
const std::string& bare_text(const Value& value, const Context& at) {
  const std::string& text = text_of(value, at);
  if (value.kind == Value::Kind::kQuoted) {
    refuse(value, at, "a quoted string, not a number; remove the quotes");
  }
  if (text.size() > kLongestNumber) refuse(value, at, "too long for a number");
  return text;
}

enum class Shape { kNone, kWhole, kDecimal };

/// Whether `text` is written as a decimal number that every reader takes for the same one.
Shape shape_of(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const std::size_t exponent = text.find_first_of("eE");
  std::string_view mantissa = text.substr(0, exponent);
  if (exponent != std::string_view::npos) {
    std::string_view digits = text.substr(exponent + 1);
    if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
    if (!all_digits(digits)) return Shape::kNone;
  }
  const std::size_t dot = mantissa.find('.');
  const std::string_view whole = mantissa.substr(0, dot);
  if (!all_digits(whole) || (whole.size() > 1 && whole.front() == '0')) return Shape::kNone;
  if (dot != std::string_view::npos && !all_digits(mantissa.substr(dot + 1))) return Shape::kNone;
  const bool plain = dot == std::string_view::npos && exponent == std::string_view::npos;
  return plain ? Shape::kWhole : Shape::kDecimal;
}

/// What is wrong with a text that was meant as a number.
std::string why_no_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 1 && text.front() == '0' && all_digits(text.substr(1, 1))) {
    return "a number may not begin with 0: some readers take it as octal";
  }
  if (text.starts_with("0x") || text.starts_with("0o") || text.starts_with("0b")) {
    return "only decimal numbers are read";
  }
  if (text.find('_') != std::string_view::npos) return "write the number without underscores";
  if (text.find(',') != std::string_view::npos) return "write the number without commas";
  return "not a number";
}

std::int64_t parse_whole(std::string_view digits, const Value& value, const Context& at) {
  std::int64_t n = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (ec != std::errc{} || end != digits.data() + digits.size()) {
    refuse(value, at, fmt::format("more than {}", std::numeric_limits<std::int64_t>::max()));
  }
  return n;
}

double parse_decimal(std::string_view text, const Value& value, const Context& at) {
  if (shape_of(text) == Shape::kNone) refuse(value, at, why_no_number(text));
  double x = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (ec != std::errc{} || !std::isfinite(x)) refuse(value, at, "out of range");
  return x;
}

/// What ${inside} stands for.
std::string replacement(std::string_view inside, const Value& value, const Context& at) {
  if (inside == "name") return at.name.value_or("${name}");
  constexpr std::string_view kEnv = "env:";
  if (!inside.starts_with(kEnv)) {
    refuse(value, at,
           fmt::format("${{{}}} is unknown; there are ${{name}} and ${{env:VARIABLE}}",
                       shown(inside)));
  }
  const std::string_view variable = inside.substr(kEnv.size());
  const auto found = at.environment->find(variable);
  if (found == at.environment->end()) {
    refuse(value, at, fmt::format("the environment has no variable {}", shown(variable)));
  }
  const bool usable = found->second.find("${") == std::string::npos && !not_text(found->second) &&
                      found->second.find_first_of("\t\r\n") == std::string::npos;
  if (!usable) {
    refuse(value, at, fmt::format("the environment's {} is no part of a path", shown(variable)));
  }
  return found->second;
}

}  // namespace

void refuse(const Value& value, const Context& at, const std::string& reason) {
  throw Error(Errc::kConfig, fmt::format("{} {}: {}: {}; takes {}", value.where, at.key,
                                         shown(value), reason, at.takes));
}

const std::string& text_of(const Value& value, const Context& at) {
  if (value.kind == Value::Kind::kNull) refuse(value, at, "there is no value");
  if (!value.is_text()) refuse(value, at, "one value belongs here");
  return value.text;
}

bool read_bool(const Value& value, const Context& at) {
  const std::string& text = text_of(value, at);
  if (value.kind == Value::Kind::kQuoted) refuse(value, at, "a quoted string; remove the quotes");
  if (text != "true" && text != "false") refuse(value, at, "neither true nor false");
  return text == "true";
}

std::int64_t read_whole(const Value& value, const Context& at) {
  const std::string& text = bare_text(value, at);
  const Shape shape = shape_of(text);
  if (shape == Shape::kNone) refuse(value, at, why_no_number(text));
  if (shape == Shape::kDecimal) refuse(value, at, "not written as a whole number");
  return parse_whole(text, value, at);
}

std::int64_t read_count(const Value& value, const Context& at) {
  std::string_view text = bare_text(value, at);
  std::size_t zeros = 0;
  if (text.ends_with('k') || text.ends_with('K')) zeros = 3;
  if (text.ends_with('M')) zeros = 6;
  if (text.ends_with('G')) zeros = 9;
  if (zeros == 0) {
    if (text.ends_with('B')) refuse(value, at, "B counts bytes here; write 1G for 1000000000");
    return read_whole(value, at);
  }
  text.remove_suffix(1);
  const Shape shape = shape_of(text);
  if (shape == Shape::kNone || text.find_first_of("eE") != std::string_view::npos) {
    refuse(value, at, why_no_number(text));
  }
  // In decimal digits, so that 1.1M is exact.
  const std::size_t dot = text.find('.');
  std::string digits(text.substr(0, dot));
  std::string fraction(dot == std::string_view::npos ? "" : text.substr(dot + 1));
  while (fraction.ends_with('0')) fraction.pop_back();
  if (fraction.size() > zeros) refuse(value, at, "comes to no whole number");
  digits += fraction + std::string(zeros - fraction.size(), '0');
  return parse_whole(digits, value, at);
}

double read_number(const Value& value, const Context& at) {
  return parse_decimal(bare_text(value, at), value, at);
}

double read_fraction(const Value& value, const Context& at, std::string_view hint) {
  std::string_view text = text_of(value, at);
  if (text.size() > kLongestNumber) refuse(value, at, "too long for a number");
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  if (!percent) bare_text(value, at);
  const double x = parse_decimal(text, value, at) / (percent ? 100.0 : 1.0);
  if (x < 0 || x > 1) refuse(value, at, fmt::format("not between 0 and 1 (0% and 100%){}", hint));
  return x;
}

namespace {

Bytes read_bytes(Bytes (*parse)(std::string_view), const Value& value, const Context& at) {
  const std::string& text = text_of(value, at);
  if (text.size() > kLongestNumber) refuse(value, at, "too long for a size");
  try {
    return parse(text);
  } catch (const Error& e) {
    throw Error(Errc::kConfig,
                fmt::format("{} {}: {}; takes {}", value.where, at.key, e.what(), at.takes));
  }
}

}  // namespace

Bytes read_size(const Value& value, const Context& at) {
  return read_bytes(parse_bytes, value, at);
}

Bytes read_endurance(const Value& value, const Context& at) {
  return read_bytes(parse_endurance, value, at);
}

namespace {

struct Unit {
  char name;
  std::int64_t seconds;
};
constexpr std::array kUnitsOfTime = {Unit{'h', 3600}, Unit{'m', 60}, Unit{'s', 1}};

}  // namespace

std::chrono::seconds read_duration(const Value& value, const Context& at) {
  const std::string& text = text_of(value, at);
  const auto unit = std::ranges::find(kUnitsOfTime, text.empty() ? ' ' : text.back(), &Unit::name);
  if (unit == kUnitsOfTime.end()) refuse(value, at, "no unit; write 90s, 5m or 2h");
  Value digits = value;
  digits.text.pop_back();
  const std::int64_t n = read_whole(digits, at);
  if (n > std::numeric_limits<std::int64_t>::max() / unit->seconds) {
    refuse(value, at, "longer than can be counted");
  }
  return std::chrono::seconds(n * unit->seconds);
}

std::string exact_duration(std::chrono::seconds n) {
  for (const Unit& unit : kUnitsOfTime) {
    if (n.count() != 0 && n.count() % unit.seconds == 0) {
      return fmt::format("{}{}", n.count() / unit.seconds, unit.name);
    }
  }
  return "0s";
}

const std::string& read_word(const Value& value, const Context& at) {
  const std::string& text = text_of(value, at);
  if (text.empty()) refuse(value, at, "empty");
  const bool control = std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (control) refuse(value, at, "control characters do not belong here");
  return text;
}

std::string read_path(const Value& value, const Context& at) {
  const std::string_view text = read_word(value, at);
  std::string out;
  for (std::size_t from = 0;;) {
    const std::size_t open = text.find("${", from);
    out += text.substr(from, open - from);
    if (open == std::string_view::npos) break;
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos) refuse(value, at, "'${' without '}'");
    out += replacement(text.substr(open + 2, close - open - 2), value, at);
    from = close + 1;
  }
  if (out.empty()) refuse(value, at, "comes to an empty path");
  return out;
}

nlohmann::json read_json(const Value& value, const Context& at) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return nullptr;
    case Value::Kind::kQuoted:
      return value.text;
    case Value::Kind::kList: {
      auto list = nlohmann::json::array();
      for (const ValuePtr& item : value.items) list.push_back(read_json(*item, at));
      return list;
    }
    case Value::Kind::kMap: {
      auto map = nlohmann::json::object();
      for (const Entry& e : value.entries) {
        if (e.key.size() > kLongestFreeKey) {
          refuse(*e.value, at, fmt::format("its key {} is too long", shown(e.key)));
        }
        map[e.key] = read_json(*e.value, at);
      }
      return map;
    }
    case Value::Kind::kPlain:
      break;
  }
  const std::string& text = value.text;
  if (text == "true" || text == "false") return text == "true";
  constexpr std::array kAmbiguous = {"yes", "no", "on", "off", "y", "n"};
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; });
  if (std::ranges::find(kAmbiguous, lower) != kAmbiguous.end() || lower == "true" ||
      lower == "false") {
    refuse(value, at, "a bool to some readers, a string to others; write true or false, or quote");
  }
  if (lower.ends_with(".nan") || lower.ends_with(".inf")) refuse(value, at, "not finite");
  const Shape shape = text.size() > kLongestNumber ? Shape::kNone : shape_of(text);
  if (shape == Shape::kWhole) return parse_whole(text, value, at);
  if (shape == Shape::kDecimal) return parse_decimal(text, value, at);
  const std::string_view unsigned_text =
      std::string_view(text).substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
  const bool like_number =
      !unsigned_text.empty() &&
      unsigned_text.find_first_not_of("0123456789abcdefxoABCDEF_.+-") == std::string_view::npos &&
      (all_digits(unsigned_text.substr(0, 1)) ||
       (unsigned_text.size() > 1 && unsigned_text.front() == '.' &&
        all_digits(unsigned_text.substr(1, 1))));
  if (like_number) {
    refuse(value, at, "a number to some readers only; write it in decimal, or quote it");
  }
  return text;
}

}  // namespace sluice::config
