#include "engine/bench/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/bench/table.h"

namespace sluice::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of_row(const std::string& target, const Point& point) {
  return fmt::format("nvme/{}/{}/{}/block:{}/depth:{}", target, name_of(point.traffic),
                     name_of(point.engine), point.block, point.depth);
}

void add_point(Json& row, const Point& point) {
  row["traffic"] = name_of(point.traffic);
  row["engine"] = name_of(point.engine);
  row["block"] = point.block;
  row["depth"] = point.depth;
}

void add_latency(Json& row, const char* way, const Latency& latency) {
  if (latency.p50_s == 0) return;
  row[fmt::format("{}_p50_us", way)] = 1e6 * latency.p50_s;
  row[fmt::format("{}_p99_us", way)] = 1e6 * latency.p99_s;
  row[fmt::format("{}_p999_us", way)] = 1e6 * latency.p999_s;
}

/// What a run and the medians of a point have in common.
template <class Values>
void add_values(Json& row, const Values& values) {
  row["bytes_per_second"] = values.rate();
  row["read_bytes_per_second"] = values.read_rate;
  row["write_bytes_per_second"] = values.write_rate;
  add_latency(row, "read", values.read_latency);
  add_latency(row, "write", values.write_latency);
  row["cpu_s_per_gb"] = values.cpu_s_per_gb;
}

Json head(const std::string& name, const char* type) {
  return {{"name", name}, {"run_name", name}, {"run_type", type}, {"threads", 1}};
}

Json row_of(const std::string& target, const Measured& run) {
  Json row = head(name_of_row(target, run.point), "iteration");
  const double gigabytes = static_cast<double>(run.read_bytes + run.written_bytes) / 1e9;
  row["repetition_index"] = run.repetition;
  row["iterations"] = 1;
  row["real_time"] = run.seconds;
  row["cpu_time"] = run.cpu_s_per_gb * gigabytes;
  row["time_unit"] = "s";
  add_point(row, run.point);
  add_values(row, run);
  row["read_bytes"] = run.read_bytes;
  row["written_bytes"] = run.written_bytes;
  row["verified_bytes"] = run.verified_bytes;
  return row;
}

Json row_of(const std::string& target, const Summary& summary) {
  const std::string name = name_of_row(target, summary.point);
  Json row = head(name, "aggregate");
  row["name"] = name + "_median";
  row["aggregate_name"] = "median";
  row["aggregate_unit"] = "time";
  row["repetitions"] = summary.repetitions;
  row["iterations"] = summary.repetitions;
  add_point(row, summary.point);
  add_values(row, summary);
  row["spread"] = summary.spread;
  row["drift"] = summary.drift;
  return row;
}

Json json_of(const Context& context) {
  return {{"date", context.date},
          {"executable", "sluice bench nvme"},
          {"num_cpus", context.cores},
          {"cpu", context.cpu},
          {"kernel", context.kernel},
          {"path", context.path},
          {"filesystem", context.filesystem},
          {"device", context.device},
          {"free_bytes", context.free},
          {"engines", context.engines},
          {"direct", context.direct},
          {"memlock", context.memlock},
          {"planned_write_bytes", context.planned_writes}};
}

Json target_of(const DriveResult& result) {
  Json target = json_of(result.means.context);
  target["name"] = result.name;
  target["written_bytes"] = result.written;
  target["verified_bytes"] = result.verified;
  target["complete"] = result.whole;
  if (result.winner) {
    add_point(target["winner"], result.winner->point);
    add_values(target["winner"], *result.winner);
  }
  if (result.steady) {
    target["steady"] = {{"flat", result.steady->flat},
                        {"write_bytes_per_second", result.steady->rates}};
  }
  return target;
}

}  // namespace

std::string to_json(const std::vector<DriveResult>& results) {
  Json context = results.empty() ? Json::object() : json_of(results.front().means.context);
  Json rows = Json::array(), targets = Json::array();
  for (const DriveResult& result : results) {
    targets.push_back(target_of(result));
    for (const Measured& run : result.measured) rows.push_back(row_of(result.name, run));
    for (const Summary& summary : result.summaries) rows.push_back(row_of(result.name, summary));
  }
  context["targets"] = std::move(targets);
  const Json all = {{"context", std::move(context)}, {"benchmarks", std::move(rows)}};
  // A path may hold bytes that are no UTF-8.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice::bench
