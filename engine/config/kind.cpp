#include "engine/config/kind.h"

#include <fmt/format.h>

#include <bit>

#include "engine/config/config.h"
#include "engine/config/nearest.h"

namespace sluice::config {
namespace {

using nlohmann::json;

const json kSizeSchema = {{"type", "string"},
                          {"pattern", R"(^[0-9]+(\.[0-9]+)? ?([KMGT]i?B?|B)$)"}};
const json kFractionSchema = {{"anyOf",
                               {{{"type", "number"}, {"minimum", 0}, {"maximum", 1}},
                                {{"type", "string"}, {"pattern", R"(^[0-9]+(\.[0-9]+)?%$)"}}}}};
const json kCountSchema = {{"anyOf",
                            {{{"type", "integer"}, {"minimum", 0}},
                             {{"type", "string"}, {"pattern", R"(^[0-9]+(\.[0-9]+)?[kKMG]$)"}}}}};
const json kPathSchema = {{"type", "string"}, {"minLength", 1}};

std::string range_words(std::int64_t least, std::int64_t most) {
  constexpr std::int64_t kNoLimitInPractice = 1'000'000'000'000;
  if (least == most) return fmt::format("{}", least);
  if (most >= kNoLimitInPractice) return fmt::format("from {}", least);
  return fmt::format("from {} to {}", least, most);
}

void check_range(std::int64_t n, std::int64_t least, std::int64_t most, const Value& v,
                 const Context& at) {
  if (n < least) refuse(v, at, fmt::format("less than {}", least));
  if (n > most) refuse(v, at, fmt::format("more than {}", most));
}

/// 0 and 1 as percentages: a bare 1 is also a count, and no other fraction is.
json fraction_json(double x) {
  if (x == 0.0) return "0%";
  if (x == 1.0) return "100%";
  return x;
}

bool ends_in_letter(const Value& v) {
  if (!v.is_text() || v.text.empty()) return false;
  const char c = v.text.back();
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

Kind<bool> boolean() {
  return {"true | false", {{"type", "boolean"}}, read_bool, [](const bool& b) { return json(b); }};
}

Kind<std::int64_t> whole(std::int64_t least, std::int64_t most) {
  return {"int " + range_words(least, most),
          {{"type", "integer"}, {"minimum", least}, {"maximum", most}},
          [=](const Value& v, const Context& at) {
            const std::int64_t n = read_whole(v, at);
            check_range(n, least, most, v, at);
            return n;
          },
          [](const std::int64_t& n) { return json(n); }};
}

Kind<std::int64_t> power_of_two(std::int64_t most) {
  Kind<std::int64_t> kind = whole(1, most);
  kind.takes = fmt::format("power of two up to {}", most);
  kind.read = [read = kind.read](const Value& v, const Context& at) {
    const std::int64_t n = read(v, at);
    if (!std::has_single_bit(static_cast<std::uint64_t>(n))) refuse(v, at, "not a power of two");
    return n;
  };
  return kind;
}

Kind<std::int64_t> count(std::int64_t least, std::int64_t most) {
  return {"count " + range_words(least, most), kCountSchema,
          [=](const Value& v, const Context& at) {
            const std::int64_t n = read_count(v, at);
            check_range(n, least, most, v, at);
            return n;
          },
          [](const std::int64_t& n) { return json(n); }};
}

Kind<double> number(double least, double most, Ends ends) {
  const bool open_low = ends == Ends::kOpenLow;
  const bool open_high = ends == Ends::kOpenHigh;
  return {fmt::format("number {} {:g} {} {:g}", open_low ? "above" : "from", least,
                      open_high ? "to below" : "to", most),
          {{"type", "number"},
           {open_low ? "exclusiveMinimum" : "minimum", least},
           {open_high ? "exclusiveMaximum" : "maximum", most}},
          [=](const Value& v, const Context& at) {
            const double x = read_number(v, at);
            // As the engine will see it: 0.99999999999 is 1 in fp32.
            const bool high =
                open_high ? !(static_cast<float>(x) < static_cast<float>(most)) : x > most;
            if (x < least || (open_low && x <= least) || high) refuse(v, at, "out of range");
            return x;
          },
          [](const double& x) { return json(x); }};
}

Kind<double> fraction() {
  return {"fraction (0 to 1, or 80%)", kFractionSchema,
          [](const Value& v, const Context& at) { return read_fraction(v, at); },
          [](const double& x) { return fraction_json(x); }};
}

Kind<Bytes> size(Bytes least, Bytes most, Bytes step) {
  std::string takes = fmt::format("size from {} to {}", exact_size(least), exact_size(most));
  if (step > 1) takes += fmt::format(", a multiple of {}", exact_size(step));
  return {takes, kSizeSchema,
          [=](const Value& v, const Context& at) {
            const Bytes n = read_size(v, at);
            if (n < least || n > most) refuse(v, at, "out of range");
            if (n % step != 0) refuse(v, at, fmt::format("no multiple of {}", exact_size(step)));
            return n;
          },
          [](const Bytes& n) { return json(exact_size(n)); }};
}

Kind<Bytes> endurance() {
  return {"bytes in powers of ten (600TB, 1.2PB)",
          {{"type", "string"}, {"pattern", "^[0-9.]+ ?[GTP]B$"}},
          read_endurance,
          [](const Bytes& n) { return json(format_endurance(n)); }};
}

Kind<std::chrono::milliseconds> duration(std::chrono::seconds least, std::chrono::seconds most) {
  return {fmt::format("duration from {} to {}", exact_duration(least), exact_duration(most)),
          {{"type", "string"}, {"pattern", "^(0|[1-9][0-9]*)[smh]$"}},
          [=](const Value& v, const Context& at) {
            const std::chrono::seconds n = read_duration(v, at);
            if (n < least || n > most) refuse(v, at, "out of range");
            return std::chrono::milliseconds(n);
          },
          [](const std::chrono::milliseconds& n) {
            return json(exact_duration(std::chrono::duration_cast<std::chrono::seconds>(n)));
          }};
}

Kind<std::variant<Bytes, double>> size_or_fraction() {
  using Limit = std::variant<Bytes, double>;
  return {"size | fraction above 0 (0.9, 90%)",
          {{"anyOf", {kSizeSchema, kFractionSchema}}},
          [](const Value& v, const Context& at) -> Limit {
            if (ends_in_letter(v)) {
              const Bytes n = read_size(v, at);
              if (n == 0) refuse(v, at, "nothing fits in no bytes");
              return n;
            }
            const bool percent = text_of(v, at).ends_with('%');
            if (!percent && read_number(v, at) > 1) return read_size(v, at);  // it has no unit
            const double x = read_fraction(v, at);
            if (x == 0) refuse(v, at, "nothing fits in no bytes");
            return x;
          },
          [](const Limit& limit) {
            if (const auto* n = std::get_if<Bytes>(&limit)) return json(exact_size(*n));
            return fraction_json(std::get<double>(limit));
          }};
}

/// 1 is one, 1.0 all.
constexpr std::string_view kOrACount = "; a count is written without a decimal point";

Kind<std::variant<std::int64_t, double>> count_or_fraction(std::int64_t most) {
  using Amount = std::variant<std::int64_t, double>;
  return {fmt::format("count {} | fraction (0.03, 3%)", range_words(0, most)),
          {{"anyOf", {kCountSchema, kFractionSchema}}},
          [=](const Value& v, const Context& at) -> Amount {
            const std::string& text = text_of(v, at);
            const bool small = text.find_first_of(".%eE") != std::string::npos;
            if (small && !ends_in_letter(v)) return read_fraction(v, at, kOrACount);
            const std::int64_t n = read_count(v, at);
            check_range(n, 0, most, v, at);
            return n;
          },
          [](const Amount& amount) {
            if (const auto* n = std::get_if<std::int64_t>(&amount)) return json(*n);
            return fraction_json(std::get<double>(amount));
          }};
}

Kind<std::variant<std::int64_t, std::chrono::milliseconds>> steps_or_duration(std::int64_t most) {
  using Interval = std::variant<std::int64_t, std::chrono::milliseconds>;
  const auto time = duration(std::chrono::seconds(1), std::chrono::hours(24 * 365));
  return {fmt::format("steps {} | duration (30m)", range_words(1, most)),
          {{"anyOf", {kCountSchema, time.schema}}},
          [=](const Value& v, const Context& at) -> Interval {
            const std::string& text = text_of(v, at);
            const bool unit = !text.empty() &&
                              std::string_view("smh").find(text.back()) != std::string_view::npos;
            if (unit) return time.read(v, at);
            const std::int64_t n = read_count(v, at);
            check_range(n, 1, most, v, at);
            return n;
          },
          [=](const Interval& interval) {
            if (const auto* n = std::get_if<std::int64_t>(&interval)) return json(*n);
            return time.write(std::get<1>(interval));
          }};
}

Kind<train::StepRange> step_range(std::int64_t most_steps) {
  using train::StepRange;
  return {fmt::format("A-B, at most {} steps | int from 1", most_steps),
          {{"anyOf",
            {{{"type", "integer"}, {"minimum", 1}},
             {{"type", "string"}, {"pattern", "^[1-9][0-9]*(-[1-9][0-9]*)?$"}}}}},
          [=](const Value& v, const Context& at) {
            const std::string& text = text_of(v, at);
            const std::size_t dash = text.find('-');
            const auto bound = [&](std::string digits) {
              if (digits.empty()) refuse(v, at, "a step is missing beside the '-'");
              Value end = v;
              end.kind = Value::Kind::kPlain;
              end.text = std::move(digits);
              return read_whole(end, at);
            };
            const std::int64_t first = bound(text.substr(0, dash));
            const std::int64_t last =
                dash == std::string::npos ? first : bound(text.substr(dash + 1));
            if (first < 1) refuse(v, at, "steps count from 1");
            if (last < first) refuse(v, at, "the last step comes before the first");
            if (last - first >= most_steps) refuse(v, at, "too many steps");
            return StepRange{first, last};
          },
          [](const StepRange& r) { return json(fmt::format("{}-{}", r.first, r.last)); }};
}

Kind<std::string> folder_name() {
  return {"name of a folder: letters, digits, '.', '_', '-'",
          {{"type", "string"}, {"pattern", "^[A-Za-z0-9_][A-Za-z0-9._-]*$"}, {"maxLength", 128}},
          [](const Value& v, const Context& at) {
            const std::string& text = read_word(v, at);
            const bool good = text.find_first_not_of(kNameCharacters) == std::string::npos &&
                              text.front() != '.' && text.front() != '-' && text.size() <= 128;
            if (!good) refuse(v, at, "no name for a folder");
            return text;
          },
          [](const std::string& s) { return json(s); }};
}

Kind<std::string> word() {
  return {"str",
          {{"type", "string"}, {"minLength", 1}},
          [](const Value& v, const Context& at) {
            const std::string& text = read_word(v, at);
            if (text.find("${") != std::string::npos) {
              refuse(v, at, "'${' is filled in in paths only");
            }
            return text;
          },
          [](const std::string& s) { return json(s); }};
}

Kind<std::string> path() {
  return {"path", kPathSchema, read_path, [](const std::string& s) { return json(s); }};
}

Kind<std::vector<std::string>> paths() {
  return {
      "null | path | list of paths",
      {{"anyOf", {{{"type", "null"}}, kPathSchema, {{"type", "array"}, {"items", kPathSchema}}}}},
      [](const Value& v, const Context& at) -> std::vector<std::string> {
        if (v.kind == Value::Kind::kNull) return {};
        if (v.kind != Value::Kind::kList) return {read_path(v, at)};
        std::vector<std::string> out;
        for (const ValuePtr& item : v.items) out.push_back(read_path(*item, at));
        return out;
      },
      [](const std::vector<std::string>& list) { return json(list); }};
}

Kind<std::array<double, 2>> pair_of(Kind<double> each) {
  return {"list of two: " + each.takes,
          {{"type", "array"}, {"items", each.schema}, {"minItems", 2}, {"maxItems", 2}},
          [read = each.read](const Value& v, const Context& at) -> std::array<double, 2> {
            if (v.kind != Value::Kind::kList || v.items.size() != 2) {
              refuse(v, at, "a list of two numbers belongs here");
            }
            return {read(*v.items[0], at), read(*v.items[1], at)};
          },
          [](const std::array<double, 2>& pair) { return json(pair); }};
}

Kind<json> free_map() {
  return {"map",
          {{"type", "object"}},
          [](const Value& v, const Context& at) {
            if (v.kind != Value::Kind::kMap) refuse(v, at, "a map of keys belongs here");
            return read_json(v, at);
          },
          [](const json& map) { return map; }};
}

json label_json(const std::string& label) {
  if (label == "true" || label == "false") return label == "true";
  return label;
}

void refuse_label(const Value& value, const Context& at, const std::vector<std::string>& known) {
  const auto close = nearest(value.text, known);
  refuse(value, at,
         close ? fmt::format("unknown or not built; did you mean {}?", *close)
               : "unknown or not built");
}

}  // namespace sluice::config
