#include "engine/checkpoint/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace sluice::checkpoint {
namespace {

using nlohmann::json;

// A safetensors header is three deep: the table, a tensor, its numbers. A manifest is six:
// segments, their tensors, the shapes of those.
constexpr int kMaxDepth = 7;

Error refusal(std::string_view file, std::string_view reason) {
  return {Errc::kFormat,
          fmt::format("{}: is not the JSON it should hold ({}); it is damaged, or another kind of "
                      "file",
                      file, reason)};
}

/// Looks at each value as it is parsed, before more memory goes to the next.
class Bounds {
 public:
  Bounds(std::string_view file, std::size_t most) : file_(file), most_(most) {}

  void see(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (depth > kMaxDepth) throw refusal(file_, "nested too deep");
    if (event != Event::object_end && event != Event::array_end && ++values_ > most_) {
      throw refusal(file_, fmt::format("more than {} values", most_));
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        throw refusal(file_, fmt::format("'{}' stands in one table twice", key));
      }
    }
  }

 private:
  std::string_view file_;
  std::size_t most_;
  std::size_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  // of each open table
};

}  // namespace

json parse_bounded_json(std::string_view text, std::string_view file, std::size_t most) {
  // The parser would take it for the end, and leave unread what follows.
  if (text.find('\0') != text.npos) throw refusal(file, "a zero byte in the text");
  try {
    return json::parse(text, [bounds = Bounds(file, most)](int depth, json::parse_event_t event,
                                                           const json& parsed) mutable {
      bounds.see(depth, event, parsed);
      return true;
    });
  } catch (const json::exception& e) {
    throw refusal(file, e.what());
  }
}

}  // namespace sluice::checkpoint
