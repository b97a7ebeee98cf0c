/// Strict readers of single values. YAML's own guesses (on = true, 012 = 10, .inf) are not made.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/units.h"
#include "engine/config/load.h"
#include "engine/config/value.h"

namespace sluice::config {

/// What a reader needs besides the value.
struct Context {
  std::string key;                  ///< the full path, for messages
  std::string takes;                ///< what the key accepts, in words
  const Environment* environment;   ///< for ${env:VARIABLE}; outlives the reading
  std::optional<std::string> name;  ///< for ${name}; nullopt = auto: left as it is
};

/// Throws kConfig: "file:line:col key: value: reason; takes ...".
[[noreturn]] void refuse(const Value& value, const Context& at, const std::string& reason);

/// The text of a plain or quoted scalar; refuses null, lists and maps.
const std::string& text_of(const Value& value, const Context& at);

bool read_bool(const Value& value, const Context& at);
/// Decimal digits, no leading zero, within int64.
std::int64_t read_whole(const Value& value, const Context& at);
/// read_whole, or with k, M, G for thousands: "1.5M".
std::int64_t read_count(const Value& value, const Context& at);
/// A finite decimal number.
double read_number(const Value& value, const Context& at);
/// 0 to 1, or 0% to 100%. `hint` follows what is said of one beyond.
double read_fraction(const Value& value, const Context& at, std::string_view hint = "");
Bytes read_size(const Value& value, const Context& at);
/// "90s", "5m", "2h".
Bytes read_endurance(const Value& value, const Context& at);
std::chrono::seconds read_duration(const Value& value, const Context& at);
/// Words for people; no control characters, not empty.
const std::string& read_word(const Value& value, const Context& at);
/// read_word with ${name} and ${env:VARIABLE} filled in.
std::string read_path(const Value& value, const Context& at);

/// Any value as JSON, by YAML 1.2's rules; what other readers would take differently is refused.
nlohmann::json read_json(const Value& value, const Context& at);

/// "90s", "5m": exact, in the largest unit that divides it.
std::string exact_duration(std::chrono::seconds n);

}  // namespace sluice::config
