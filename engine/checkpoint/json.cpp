#include "engine/checkpoint/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace sluice::checkpoint {
namespace {

// A safetensors header is three deep: the table, a tensor, its numbers.
constexpr int kMaxDepth = 4;

Error refusal(std::string_view file, std::string_view reason) {
  return {Errc::kFormat,
          fmt::format("{}: is not the JSON it should hold ({}); it is damaged, or another kind of "
                      "file",
                      file, reason)};
}

}  // namespace

nlohmann::json parse_bounded_json(std::string_view text, std::string_view file) {
  using nlohmann::json;
  try {
    return json::parse(text, [file](int depth, json::parse_event_t, const json&) {
      if (depth > kMaxDepth) throw refusal(file, "nested too deep");
      return true;
    });
  } catch (const json::exception& e) {
    throw refusal(file, e.what());
  }
}

}  // namespace sluice::checkpoint
