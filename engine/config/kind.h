/// Types of values: how one is written in YAML, read, written back and shown to an editor. Kinds
/// are put together: or_auto(integer<unsigned>(1, 64)) is a std::optional<unsigned>.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/units.h"
#include "engine/config/scalars.h"
#include "engine/train/options.h"

namespace sluice::config {

/// `write` gives what `read` takes back to the same value.
template <class T>
struct Kind {
  std::string takes;      ///< "auto | int from 1 to 64"
  nlohmann::json schema;  ///< a JSON Schema
  std::function<T(const Value&, const Context&)> read;
  std::function<nlohmann::json(const T&)> write;
};

enum class Ends : std::uint8_t { kClosed, kOpenLow, kOpenHigh };

Kind<bool> boolean();
Kind<std::int64_t> whole(std::int64_t least, std::int64_t most);
Kind<std::int64_t> count(std::int64_t least, std::int64_t most);
/// Of numbers that scale without rounding.
Kind<std::int64_t> power_of_two(std::int64_t most);
Kind<double> number(double least, double most, Ends ends = Ends::kClosed);
Kind<double> fraction();
/// `step`: sizes are multiples of it; 1_B = any.
Kind<Bytes> size(Bytes least, Bytes most, Bytes step);
/// Of a drive: "600TB", in powers of ten.
Kind<Bytes> endurance();
/// Whole seconds, minutes or hours.
Kind<std::chrono::milliseconds> duration(std::chrono::seconds least, std::chrono::seconds most);
/// A size, or a fraction above 0.
Kind<std::variant<Bytes, double>> size_or_fraction();
/// Digits are a count; with a dot or a % it is a fraction.
Kind<std::variant<std::int64_t, double>> count_or_fraction(std::int64_t most);
/// Digits are a count of steps from 1; with s, m or h it is a duration.
Kind<std::variant<std::int64_t, std::chrono::milliseconds>> steps_or_duration(std::int64_t most);
/// "3-5" or "3".
Kind<train::StepRange> step_range(std::int64_t most_steps);
/// A name of one folder.
Kind<std::string> folder_name();
Kind<std::string> word();
Kind<std::string> path();
/// One path or a list of them; null = none.
Kind<std::vector<std::string>> paths();
Kind<std::array<double, 2>> pair_of(Kind<double> each);
/// A map of free keys.
Kind<nlohmann::json> free_map();

/// true and false are bools in JSON, and so in the schema and in what is written.
nlohmann::json label_json(const std::string& label);
/// The refusal of a label that is none of `known`; names the closest.
[[noreturn]] void refuse_label(const Value& value, const Context& at,
                               const std::vector<std::string>& known);

template <class T>
Kind<T> integer(T least, T most) {
  Kind<std::int64_t> wide =
      whole(static_cast<std::int64_t>(least), static_cast<std::int64_t>(most));
  return {
      wide.takes, wide.schema,
      [read = wide.read](const Value& v, const Context& at) { return static_cast<T>(read(v, at)); },
      [](const T& n) { return nlohmann::json(n); }};
}

/// One of the labels. A value's first label is the one written; later ones are read only.
template <class T>
Kind<T> choice(std::vector<std::pair<std::string, T>> labels) {
  std::string takes;
  auto allowed = nlohmann::json::array();
  for (const auto& [label, value] : labels) {
    takes += (takes.empty() ? "" : " | ") + label;
    allowed.push_back(label_json(label));
  }
  const auto read = [labels](const Value& v, const Context& at) {
    const std::string& text = text_of(v, at);
    std::vector<std::string> known;
    for (const auto& [label, value] : labels) {
      if (label == text) return value;
      known.push_back(label);
    }
    refuse_label(v, at, known);
  };
  const auto write = [labels](const T& value) {
    for (const auto& [label, known] : labels) {
      if (known == value) return label_json(label);
    }
    return nlohmann::json();
  };
  return {takes, {{"enum", allowed}}, read, write};
}

/// One of these, by the names that their room gives them (name_of); with `when_auto` also auto,
/// which is that one.
template <class T>
Kind<T> named(std::initializer_list<T> all,
              std::type_identity_t<std::optional<T>> when_auto = std::nullopt) {
  std::vector<std::pair<std::string, T>> labels;
  for (const T each : all) labels.emplace_back(name_of(each), each);
  if (when_auto) labels.emplace_back("auto", *when_auto);
  return choice(std::move(labels));
}

/// `auto` stands for the default of the engine, which is `meaning` today.
template <class T>
Kind<T> auto_is(T meaning, Kind<T> kind) {
  kind.takes = "auto (" +
               (kind.write(meaning).is_string() ? kind.write(meaning).template get<std::string>()
                                                : kind.write(meaning).dump()) +
               ") | " + kind.takes;
  kind.schema = {{"anyOf", {{{"const", "auto"}}, kind.schema}}};
  kind.read = [meaning, read = kind.read](const Value& v, const Context& at) {
    return v.is_text() && v.text == "auto" ? meaning : read(v, at);
  };
  return kind;
}

template <class T>
Kind<std::optional<T>> or_auto(Kind<T> kind) {
  return {"auto | " + kind.takes,
          {{"anyOf", {{{"const", "auto"}}, kind.schema}}},
          [read = kind.read](const Value& v, const Context& at) -> std::optional<T> {
            if (v.is_text() && v.text == "auto") return std::nullopt;
            return read(v, at);
          },
          [write = kind.write](const std::optional<T>& value) {
            return value ? write(*value) : nlohmann::json("auto");
          }};
}

template <class T>
Kind<std::optional<T>> or_null(Kind<T> kind) {
  return {"null | " + kind.takes,
          {{"anyOf", {{{"type", "null"}}, kind.schema}}},
          [read = kind.read](const Value& v, const Context& at) -> std::optional<T> {
            if (v.kind == Value::Kind::kNull) return std::nullopt;
            return read(v, at);
          },
          [write = kind.write](const std::optional<T>& value) {
            return value ? write(*value) : nlohmann::json();
          }};
}

}  // namespace sluice::config
