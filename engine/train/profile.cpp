#include "engine/train/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/executor/driver.h"

namespace sluice::train {
namespace {

using nlohmann::ordered_json;
using prefetch::Cause;

constexpr std::uint32_t kMostRows = 1000;  // per lane

double micros(Nanos n) {
  return static_cast<double>(n) / 1000.0;
}

std::uint32_t track(std::uint32_t lane, std::uint32_t row) {
  return lane * kMostRows + row;
}

/// Puts each span in the first row of its lane that is free when it begins.
class Rows {
 public:
  explicit Rows(std::size_t lanes) : ends_(lanes) {}

  std::uint32_t place(const Span& span) {
    auto& ends = ends_[span.track];
    auto row = std::ranges::find_if(ends, [&](Nanos end) { return end <= span.begin; });
    if (row == ends.end()) row = ends.insert(row, 0);
    *row = span.end;
    return static_cast<std::uint32_t>(row - ends.begin());
  }
  std::size_t count(std::size_t lane) const { return std::max<std::size_t>(1, ends_[lane].size()); }

 private:
  std::vector<std::vector<Nanos>> ends_;
};

ordered_json name_of_track(std::uint32_t lane, std::uint32_t row, const std::string& name) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", 1},
          {"tid", track(lane, row)},
          {"args", {{"name", row == 0 ? name : fmt::format("{} ({})", name, row + 1)}}}};
}

ordered_json order_of_track(std::uint32_t lane, std::uint32_t row) {
  return {{"name", "thread_sort_index"},
          {"ph", "M"},
          {"pid", 1},
          {"tid", track(lane, row)},
          {"args", {{"sort_index", track(lane, row)}}}};
}

}  // namespace

Profile::Profile(StepRange steps, std::string path, const prefetch::Lanes& lanes,
                 const prefetch::Pools& pools)
    : steps_(steps), path_(std::move(path)), lanes_(lanes), pools_(pools) {}

void Profile::collect(std::int64_t step, std::uint32_t instance, const prefetch::Program& program,
                      const Trace& ring) {
  Ran ran{step, &program, ring.spans()};
  std::erase_if(ran.spans, [&](const Span& span) {
    return executor::placed(span.where).instance != instance;
  });
  ran_.push_back(std::move(ran));
}

void Profile::write() {
  if (ran_.empty() || writer_.joinable()) return;
  writer_ = std::jthread([this] {
    name_this_thread("profile");
    try {
      write_file();
      log::info(
          fmt::format("profile: steps {} to {} in {}", ran_.front().step, ran_.back().step, path_));
    } catch (const std::exception& e) {
      log::warning(fmt::format("the profile is lost: {}", e.what()));
    }
  });
}

std::string Profile::json(const Ran& ran, const Span& span, std::uint32_t row, Nanos zero) const {
  const prefetch::OpRef ref = executor::placed(span.where);
  const prefetch::Op& op = ran.program->ops()[ref.index];
  ordered_json args = {{"program", ran.program->name()}, {"step", ran.step}};
  if (op.where.segment >= 0) args["segment"] = op.where.segment;
  if (op.where.chunk >= 0) args["chunk"] = op.where.chunk;
  if (op.where.micro_batch >= 0) args["micro_batch"] = op.where.micro_batch;
  const Cause cause = executor::unpack_cause(span.cause);
  args["waited_for"] = cause.kind == Cause::Kind::kLane ? lanes_[cause.which].name
                       : cause.kind == Cause::Kind::kMemory
                           ? "memory of " + pools_[cause.which].name
                           : "stream";
  args["ready_before_us"] = micros(span.begin - span.ready);
  const ordered_json event = {{"name", op.kind.name},
                              {"cat", lanes_[span.track].name},
                              {"ph", "X"},
                              {"pid", 1},
                              {"tid", track(span.track, row)},
                              {"ts", micros(span.begin - zero)},
                              {"dur", micros(span.end - span.begin)},
                              {"args", std::move(args)}};
  return event.dump();
}

void Profile::write_file() const {
  std::vector<std::pair<const Ran*, const Span*>> events;
  for (const Ran& ran : ran_) {
    for (const Span& span : ran.spans) events.emplace_back(&ran, &span);
  }
  std::ranges::sort(events, {}, [](const auto& event) { return event.second->begin; });

  std::ofstream file(path_, std::ios::binary);
  file << R"({"displayTimeUnit":"ms","traceEvents":[)" << '\n';
  Rows rows(lanes_.size());
  const Nanos zero = events.empty() ? 0 : events.front().second->begin;
  for (const auto& [ran, span] : events) {
    file << json(*ran, *span, rows.place(*span), zero) << ",\n";
  }
  const char* before = "";
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    for (std::uint32_t row = 0; row < rows.count(lane); ++row) {
      file << before << name_of_track(lane, row, lanes_[lane].name) << ",\n"
           << order_of_track(lane, row);
      before = ",\n";
    }
  }
  file << "\n]}\n";
  file.close();
  SLUICE_CHECK(!file.fail(), kIo, fmt::format("cannot write {}", path_));
}

}  // namespace sluice::train
