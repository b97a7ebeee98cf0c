#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/json.h"
#include "engine/checkpoint/manifest.h"

namespace sluice::checkpoint {
namespace {

using nlohmann::json;
using Pending = Position::Pending;

// A record is 13 of them, or 17: more than kMaxManifest has room for.
constexpr std::size_t kMostValues = std::size_t{1} << 25;
constexpr std::uint64_t kMostElems = std::uint64_t{1} << 50;  // no count of bytes overflows

constexpr std::array kDTypes = {DType::kF32, DType::kBf16, DType::kF16};

constexpr const char* name_of(Pending pending) {
  return pending == Pending::kSkipped ? "skipped" : "applied";
}

/// What a manifest may hold; each doubt is an error with the file's name.
class Parser {
 public:
  explicit Parser(std::string_view file) : file_(file) {}

  Manifest parse(std::string_view text) const {
    const json root = parse_bounded_json(text, file_, kMostValues);
    check(root.is_object(), "is no table");
    const auto version = number(root, "version");
    SLUICE_CHECK(version <= static_cast<std::uint64_t>(kManifestVersion), kCheckpoint,
                 fmt::format("{}: has version {}, this sluice reads up to {}: it was made by a "
                             "newer one; go on with that",
                             file_, version, kManifestVersion));
    Manifest m;
    m.sluice = string(root, "sluice");
    const json& position = object(root, "position");
    m.position = {count(position, "step"), count(position, "applied"),
                  count(position, "skipped_in_row"), number(position, "nvme_written")};
    m.position.loss_scale = loss_scale(position);
    if (m.position.loss_scale > 0) m.position.scale_held = count(position, "scale_held");
    m.position.pending = pending(position);
    if (m.position.pending != Pending::kNone) m.position.pending_lr = real(position, "pending_lr");
    for (const auto& [key, value] : object(root, "settings").items()) {
      m.settings[key] = text_of(value, key);
    }
    for (const auto& [name, sum] : object(root, "beside").items()) {
      m.beside[file_name_of(name)] = sum_of(sum, name);
    }
    check(m.beside.contains("config.json"), "'beside' has no 'config.json'");
    for (const json& s : array(root, "segments")) m.segments.push_back(segment(s));
    for (const json& f : array(root, "files")) {
      m.files.push_back(file_name_of(text_of(f, "files")));
    }
    for (const json& r : array(root, "records")) m.records.push_back(record(r));
    if (root.contains("gradients")) {
      for (const json& r : array(root, "gradients")) m.gradients.push_back(gradient(r));
    }
    check(version == static_cast<std::uint64_t>(m.version()),
          fmt::format("has version {} and {} gradients", version, m.gradients.size()));
    check_records(m);
    return m;
  }

 private:
  void check(bool good, std::string_view reason) const {
    SLUICE_CHECK(good, kCheckpoint, fmt::format("{}: {}; it is damaged", file_, reason));
  }
  const json& member(const json& table, const char* key) const {
    check(table.is_object(), fmt::format("what should have '{}' is no table", key));
    const auto at = table.find(key);
    check(at != table.end(), fmt::format("has no '{}'", key));
    return *at;
  }
  const json& object(const json& table, const char* key) const {
    const json& value = member(table, key);
    check(value.is_object(), fmt::format("'{}' is no table", key));
    return value;
  }
  const json& array(const json& table, const char* key) const {
    const json& value = member(table, key);
    check(value.is_array(), fmt::format("'{}' is no list", key));
    return value;
  }
  std::string text_of(const json& value, std::string_view key) const {
    check(value.is_string(), fmt::format("'{}' is no text", key));
    return value.get<std::string>();
  }
  std::string string(const json& table, const char* key) const {
    return text_of(member(table, key), key);
  }
  std::uint64_t number(const json& table, const char* key) const {
    const json& value = member(table, key);
    check(value.is_number_unsigned(), fmt::format("'{}' is no whole number", key));
    return value.get<std::uint64_t>();
  }
  std::int64_t count(const json& table, const char* key) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 56;
    const std::uint64_t n = number(table, key);
    check(n < kMost, fmt::format("'{}' is {}", key, n));
    return static_cast<std::int64_t>(n);
  }
  float real(const json& table, const char* key) const {
    const json& value = member(table, key);
    check(value.is_number(), fmt::format("'{}' is no number", key));
    const auto wide = value.get<double>();
    check(std::abs(wide) <= std::numeric_limits<float>::max(),
          fmt::format("'{}' is {}", key, wide));
    return static_cast<float>(wide);
  }
  /// Manifests of runs without one have none.
  std::int64_t loss_scale(const json& table) const {
    if (!table.contains("loss_scale")) return 0;
    const std::int64_t scale = count(table, "loss_scale");
    check(scale > 0 && (scale & (scale - 1)) == 0,
          fmt::format("'loss_scale' is {}, no power of two", scale));
    return scale;
  }
  /// Manifests of runs in which no update waits have none.
  Pending pending(const json& table) const {
    if (!table.contains("pending")) return Pending::kNone;
    const std::string name = string(table, "pending");
    for (const Pending pending : {Pending::kApplied, Pending::kSkipped}) {
      if (name == name_of(pending)) return pending;
    }
    check(false, fmt::format("'pending' is '{}'", name));
    return {};
  }
  std::uint64_t sum_of(const json& value, std::string_view key) const {
    const std::string digits = text_of(value, key);
    std::uint64_t sum = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), sum, 16);
    check(error == std::errc() && end == digits.data() + digits.size() && digits.size() == 16,
          fmt::format("the sum of '{}' is not 16 digits", key));
    return sum;
  }
  /// Of the folder itself.
  std::string file_name_of(const std::string& name) const {
    check(!name.empty() && name.find('/') == std::string::npos && name.front() != '.',
          fmt::format("'{}' is no file of its folder", name));
    return name;
  }
  SegmentPlace segment(const json& value) const {
    SegmentPlace s{string(value, "name"), number(value, "elems"), {}};
    check(s.elems <= kMostElems, fmt::format("segment '{}' has {} elements", s.name, s.elems));
    for (const json& t : array(value, "tensors")) {
      TensorPlace tensor{string(t, "name"), number(t, "offset"), {}};
      for (const json& extent : array(t, "shape")) {
        check(extent.is_number_unsigned(), fmt::format("the shape of '{}'", tensor.name));
        tensor.shape.push_back(extent.get<std::int64_t>());
      }
      s.tensors.push_back(std::move(tensor));
    }
    return s;
  }
  Record record(const json& value) const {
    const auto segment = number(value, "segment");
    check(segment <= static_cast<std::uint64_t>(std::numeric_limits<int>::max()),
          "a record of no segment");
    return {static_cast<int>(segment), number(value, "first"),
            number(value, "elems"),    number(value, "file"),
            number(value, "offset"),   sum_of(member(value, "xxh3"), "xxh3")};
  }

  Record gradient(const json& value) const {
    Record r = record(value);
    r.kind = RecordKind::kGradient;
    const std::string name = string(value, "dtype");
    const auto* const dtype = std::ranges::find(kDTypes, name, dtype_name);
    check(dtype != kDTypes.end(), fmt::format("a gradient has the dtype '{}'", name));
    r.dtype = *dtype;
    r.factor = real(value, "factor");
    return r;
  }

  void check_records(const Manifest& m) const {
    std::size_t files = 0;
    for (const RecordKind kind : kRecordKinds) {
      if (!m.of(kind).empty() || kind == RecordKind::kState) files = check_tiles(m, kind, files);
    }
    check(m.files.size() == files, fmt::format("names {} files", m.files.size()));
    const std::string contradiction = contradiction_of(m);
    check(contradiction.empty(), contradiction);
    Manifest expected = m;
    place_records(expected);
    check(expected.records == m.records && expected.gradients == m.gradients,
          "its records do not lie as their files have them");
  }
  /// Records of a kind tile their segments, and begin with file `first_file`. The number of the
  /// files up to theirs.
  std::size_t check_tiles(const Manifest& m, RecordKind kind, std::size_t first_file) const {
    const std::vector<Record>& records = m.of(kind);
    const std::string what = kind == RecordKind::kState ? "record" : "gradient";
    std::size_t i = 0;
    std::size_t files = first_file;
    for (std::size_t s = 0; s < m.segments.size(); ++s) {
      for (std::uint64_t at = 0; at < m.segments[s].elems; ++i) {
        check(i < records.size() && records[i].segment == static_cast<int>(s) &&
                  records[i].first_elem == at,
              fmt::format("there is no {} of segment '{}' from element {} on", what,
                          m.segments[s].name, at));
        const Record& r = records[i];
        check(r.elems > 0 && r.elems % kGrainElems == 0 && r.elems <= m.segments[s].elems - at,
              fmt::format("the {} of segment '{}' from element {} on has {} elements", what,
                          m.segments[s].name, at, r.elems));
        check(r.file == files || (i > 0 && r.file + 1 == files),
              fmt::format("{} {} is in file {}", what, i, r.file));
        files = r.file + 1;
        at += r.elems;
      }
    }
    check(i == records.size(), fmt::format("{} {} belongs to no segment", what, i));
    return files;
  }

  std::string_view file_;
};

nlohmann::ordered_json json_of(const Record& r) {
  return {{"segment", r.segment}, {"first", r.first_elem}, {"elems", r.elems},
          {"file", r.file},       {"offset", r.offset},    {"xxh3", hex(r.sum)}};
}

}  // namespace

std::string to_json(const Manifest& m) {
  nlohmann::ordered_json root = {
      {"version", m.version()},
      {"sluice", m.sluice},
      {"position",
       {{"step", m.position.step},
        {"applied", m.position.applied},
        {"skipped_in_row", m.position.skipped_in_row},
        {"nvme_written", m.position.nvme_written}}},
      {"settings", m.settings},
      {"beside", nlohmann::ordered_json::object()},
      {"files", m.files},
  };
  if (m.position.loss_scale > 0) {
    root["position"]["loss_scale"] = m.position.loss_scale;
    root["position"]["scale_held"] = m.position.scale_held;
  }
  if (m.position.pending != Pending::kNone) {
    root["position"]["pending"] = name_of(m.position.pending);
    root["position"]["pending_lr"] = m.position.pending_lr;
  }
  for (const auto& [name, sum] : m.beside) root["beside"][name] = hex(sum);
  auto& segments = root["segments"] = nlohmann::ordered_json::array();
  for (const SegmentPlace& s : m.segments) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const TensorPlace& t : s.tensors) {
      tensors.push_back({{"name", t.name}, {"offset", t.offset_elems}, {"shape", t.shape}});
    }
    segments.push_back({{"name", s.name}, {"elems", s.elems}, {"tensors", std::move(tensors)}});
  }
  auto& records = root["records"] = nlohmann::ordered_json::array();
  for (const Record& r : m.records) records.push_back(json_of(r));
  for (const Record& r : m.gradients) {
    nlohmann::ordered_json gradient = json_of(r);
    gradient["dtype"] = dtype_name(r.dtype);
    gradient["factor"] = r.factor;
    root["gradients"].push_back(std::move(gradient));
  }
  return root.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, std::string_view file) {
  try {
    return Parser(file).parse(text);
  } catch (const Error& e) {
    if (e.code == Errc::kFormat) throw Error(Errc::kCheckpoint, e.what());
    throw;
  }
}

}  // namespace sluice::checkpoint
