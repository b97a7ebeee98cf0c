#include "engine/bench/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/bench/memory_table.h"
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

Json head(const std::string& name, const char* type, unsigned threads = 1) {
  return {{"name", name}, {"run_name", name}, {"run_type", type}, {"threads", threads}};
}

Json iteration(Json row, int repetition, double real_s, double cpu_s) {
  row["repetition_index"] = repetition;
  row["iterations"] = 1;
  row["real_time"] = real_s;
  row["cpu_time"] = cpu_s;
  row["time_unit"] = "s";
  return row;
}

Json median_of(Json row, int repetitions) {
  row["name"] = row["run_name"].get<std::string>() + "_median";
  row["aggregate_name"] = "median";
  row["aggregate_unit"] = "time";
  row["repetitions"] = repetitions;
  row["iterations"] = repetitions;
  return row;
}

Json row_of(const std::string& target, const Measured& run) {
  const double gigabytes = static_cast<double>(run.read_bytes + run.written_bytes) / 1e9;
  // Times of 10^9 bytes, so that tools which compare times compare speeds.
  Json row = iteration(head(name_of_row(target, run.point), "iteration"), run.repetition,
                       gigabytes > 0 ? run.seconds / gigabytes : 0, run.cpu_s_per_gb);
  row["seconds"] = run.seconds;
  add_point(row, run.point);
  add_values(row, run);
  row["read_bytes"] = run.read_bytes;
  row["written_bytes"] = run.written_bytes;
  row["verified_bytes"] = run.verified_bytes;
  return row;
}

Json row_of(const std::string& target, const Summary& summary) {
  Json row = median_of(head(name_of_row(target, summary.point), "aggregate"), summary.repetitions);
  add_point(row, summary.point);
  add_values(row, summary);
  row["real_time"] = summary.rate() > 0 ? 1e9 / summary.rate() : 0;
  row["cpu_time"] = summary.cpu_s_per_gb;
  row["time_unit"] = "s";
  row["spread"] = summary.spread;
  row["drift"] = summary.drift;
  return row;
}

Json json_of(const std::string& verb, const MachineContext& machine) {
  return {{"date", machine.date},
          {"executable", "sluice bench " + verb},
          {"num_cpus", machine.cores},
          {"cpu", machine.cpu},
          {"kernel", machine.kernel}};
}

Json json_of(const Context& context) {
  Json all = json_of("nvme", context);
  all.update({{"path", context.path},
              {"filesystem", context.filesystem},
              {"device", context.device},
              {"free_bytes", context.free},
              {"wear", context.wear},
              {"engines", context.engines},
              {"direct", context.direct},
              {"memlock", context.memlock},
              {"planned_write_bytes", context.planned_writes}});
  return all;
}

Json head(const std::string& verb, const MemoryPoint& point, const char* type) {
  const char* const stores = name_of(point.stores);
  Json row = head(fmt::format("{}/{}/{}/{}/size:{}/threads:{}", verb, point.work, point.by, stores,
                              point.size, point.threads),
                  type, point.threads);
  row["work"] = point.work;
  row["by"] = point.by;
  row["stores"] = stores;
  row["parameters"] = point.parameters;
  row["bytes"] = point.moved;
  row["roof"] = point.roof;
  return row;
}

std::string dumped(Json context, Json rows) {
  const Json all = {{"context", std::move(context)}, {"benchmarks", std::move(rows)}};
  // A path may hold bytes that are no UTF-8.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
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
  return dumped(std::move(context), std::move(rows));
}

std::string to_json(const std::string& verb, const MachineContext& machine,
                    const std::vector<MemoryRun>& runs,
                    const std::vector<MemorySummary>& summaries) {
  Json rows = Json::array();
  for (const MemoryRun& run : runs) {
    Json row =
        iteration(head(verb, run.point, "iteration"), run.repetition, run.seconds, run.cpu_seconds);
    row["bytes_per_second"] = static_cast<double>(run.point.moved) / run.seconds;
    rows.push_back(std::move(row));
  }
  for (const MemorySummary& summary : summaries) {
    Json row = median_of(head(verb, summary.point, "aggregate"), summary.repetitions);
    row["real_time"] = summary.seconds;
    row["time_unit"] = "s";
    row["bytes_per_second"] = summary.rate();
    row["spread"] = summary.spread;
    if (summary.roof_seconds > 0) row["of_roof"] = summary.of_roof();
    rows.push_back(std::move(row));
  }
  return dumped(json_of(verb, machine), std::move(rows));
}

}  // namespace sluice::bench
