#include "engine/data/metrics.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "engine/base/error.h"

namespace sluice::data {
namespace {

/// Shares need no more than this, and a line stays short.
double rounded(double share) {
  return std::round(share * 1e4) / 1e4;
}

nlohmann::ordered_json by_lane(const std::vector<LaneShare>& lanes) {
  nlohmann::ordered_json json;
  for (const LaneShare& lane : lanes) {
    auto& to = json[lane.lane];
    to["busy"] = rounded(lane.busy);
    for (const auto& [reason, share] : lane.idle) {
      if (rounded(share) > 0) to["idle"][reason] = rounded(share);
    }
  }
  return json;
}

std::int64_t step_of(std::string_view line, const std::string& path, int number) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool is_record = json.is_object() && json.contains("step") && json["step"].is_number();
  SLUICE_CHECK(is_record, kFormat,
               fmt::format("{}:{}: is no step record; move the file away", path, number));
  return json["step"].get<std::int64_t>();
}

struct Kept {
  std::uint64_t bytes = 0;
  std::int64_t last_step = 0;
};

/// The whole lines up to the first of a step after `done`, looked at piece by piece.
Kept lines_to_keep(const Descriptor& file, std::int64_t done, const std::string& path) {
  constexpr std::uint64_t kPiece = 1 << 20;
  Kept kept;
  std::string text;  // from kept.bytes on
  int number = 1;
  for (std::uint64_t at = 0, size = file.size(); at < size;) {
    const std::size_t held = text.size();
    text.resize(held + std::min(kPiece, size - at));
    file.read(at, std::as_writable_bytes(std::span(text).subspan(held)));
    at += text.size() - held;
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const auto step = step_of(std::string_view(text).substr(begin, end - begin), path, number++);
      if (step > done) return kept;
      kept = {kept.bytes + (end + 1 - begin), step};
    }
    text.erase(0, begin);
  }
  return kept;
}

}  // namespace

std::string to_json(const StepRecord& record) {
  nlohmann::ordered_json json = {
      {"step", record.step},
      {"loss", record.loss},
      {"gnorm", record.gnorm},
      {"lr", record.lr},
      {"seconds", record.seconds},
      {"tokens", record.tokens},
      {"targets", record.targets},
      {"clip", record.clip},
      {"skipped", record.skipped},
      {"flops", record.flops},
      {"bound", record.bound},
      {"bound_share", record.bound_share},
      {"cpu_bytes", record.cpu_bytes},
      {"gpu_bytes", record.gpu_bytes},
      {"h2d_bytes", record.h2d_bytes},
      {"d2h_bytes", record.d2h_bytes},
      {"nvme_read_bytes", record.nvme_read_bytes},
      {"nvme_write_bytes", record.nvme_write_bytes},
      {"nvme_write_total", record.nvme_write_total},
  };
  if (!record.lanes.empty()) json["lanes"] = by_lane(record.lanes);
  if (const auto& forecast = record.forecast) {
    json["forecast"] = {{"seconds", forecast->seconds}, {"lanes", by_lane(forecast->lanes)}};
  }
  for (const MemoryUse& use : record.memory) {
    json["memory"][use.tier][use.name] = {{"reserved", use.reserved}, {"peak", use.peak}};
  }
  if (!record.nvme.empty()) json["nvme"] = record.nvme;
  if (record.resident_peak > 0) json["resident_peak"] = record.resident_peak;
  if (record.mfu) json["mfu"] = rounded(*record.mfu);
  if (record.largest_gnorm) json["largest_gnorm"] = *record.largest_gnorm;
  if (record.delayed) json["delayed"] = true;
  if (record.loss_scale) json["loss_scale"] = *record.loss_scale;
  if (record.valid_loss) json["valid_loss"] = *record.valid_loss;
  return json.dump();
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t done)
    : file_(path, O_RDWR | O_CREAT | O_APPEND) {
  const Kept kept = lines_to_keep(file_, done, path);
  bytes_ = kept.bytes;
  last_step_ = kept.last_step;
  if (bytes_ < file_.size()) file_.truncate(bytes_);
}

void MetricsFile::append(const StepRecord& record) {
  const std::string line = to_json(record) + '\n';
  try {
    file_.write(std::as_bytes(std::span(line)));
  } catch (const Error&) {
    try {
      file_.truncate(bytes_);
    } catch (const Error&) {  // the first error says more
    }
    throw;
  }
  bytes_ += line.size();
  last_step_ = record.step;
}

void MeanSeconds::add(double seconds) {
  constexpr double kFade = 0.9;
  sum_ = kFade * sum_ + seconds;
  weight_ = kFade * weight_ + 1;
}

}  // namespace sluice::data
