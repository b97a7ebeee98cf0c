#include "engine/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/json.h"
#include "engine/zero/layout.h"
#include "nvme/sums.h"

namespace sluice::checkpoint {
namespace {

using nlohmann::json;

// A record is 13 of them: more than kMaxManifest has room for.
constexpr std::size_t kMostValues = std::size_t{1} << 25;
constexpr std::uint64_t kMostElems = std::uint64_t{1} << 50;  // no count of bytes overflows

std::string file_name(std::size_t file) {
  return fmt::format("state-0-of-1-{}.safetensors", file);  // of rank 0, of one
}

/// Where the records of each file lie, given which file each is in. The header's length decides
/// where data begins, and is known once the file's records are.
void place_records(Manifest& manifest) {
  for (std::size_t file = 0, i = 0; file < manifest.files.size(); ++file) {
    Bytes at = header_of(manifest, file).size();
    for (; i < manifest.records.size() && manifest.records[i].file == file; ++i) {
      manifest.records[i].offset = at;
      at += manifest.records[i].bytes();
    }
  }
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
    check(version == static_cast<std::uint64_t>(kManifestVersion),
          fmt::format("has version {}", version));
    Manifest m;
    m.sluice = string(root, "sluice");
    const json& position = object(root, "position");
    m.position = {count(position, "step"), count(position, "applied"),
                  count(position, "skipped_in_row"), number(position, "nvme_written")};
    m.position.loss_scale = loss_scale(position);
    if (m.position.loss_scale > 0) m.position.scale_held = count(position, "scale_held");
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
  /// Manifests of runs without one have none.
  std::int64_t loss_scale(const json& table) const {
    if (!table.contains("loss_scale")) return 0;
    const std::int64_t scale = count(table, "loss_scale");
    check(scale > 0 && (scale & (scale - 1)) == 0,
          fmt::format("'loss_scale' is {}, no power of two", scale));
    return scale;
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

  void check_records(const Manifest& m) const {
    std::size_t i = 0;
    std::size_t file = 0;
    for (std::size_t s = 0; s < m.segments.size(); ++s) {
      for (std::uint64_t at = 0; at < m.segments[s].elems; ++i) {
        check(i < m.records.size() && m.records[i].segment == static_cast<int>(s) &&
                  m.records[i].first_elem == at,
              fmt::format("there is no record of segment '{}' from element {} on",
                          m.segments[s].name, at));
        const Record& r = m.records[i];
        check(r.elems > 0 && r.elems % kGrainElems == 0 && r.elems <= m.segments[s].elems - at,
              fmt::format("the record of segment '{}' from element {} on has {} elements",
                          m.segments[s].name, at, r.elems));
        check(r.file == file || (i > 0 && r.file == file + 1),
              fmt::format("record {} is in file {}", i, r.file));
        file = r.file;
        at += r.elems;
      }
    }
    check(i == m.records.size(), fmt::format("record {} belongs to no segment", i));
    check(m.records.empty() ? m.files.empty() : m.files.size() == file + 1,
          fmt::format("names {} files", m.files.size()));
    Manifest expected = m;
    place_records(expected);
    check(expected.records == m.records, "its records do not lie as their files have them");
  }

  std::string_view file_;
};

}  // namespace

std::vector<SegmentPlace> places_of(const shape::Model& model) {
  std::vector<SegmentPlace> places;
  for (const shape::Segment& segment : model.segments) {
    const zero::Layout layout = zero::make_layout(segment);
    SegmentPlace place{segment.name(), layout.elems, {}};
    std::ranges::replace(place.name, ' ', '.');
    for (const zero::Placed& p : layout.tensors) {
      const auto& tensor = segment.tensors[static_cast<std::size_t>(p.tensor)];
      place.tensors.push_back({tensor.name, p.offset_elems, tensor.shape});
    }
    places.push_back(std::move(place));
  }
  return places;
}

void lay_out(Manifest& manifest, const std::vector<std::vector<zero::Chunk>>& chunks,
             Bytes file_size) {
  Bytes filled = 0;
  for (std::size_t s = 0; s < chunks.size(); ++s) {
    for (const zero::Chunk& chunk : chunks[s]) {
      Record record{static_cast<int>(s), chunk.first_elem, chunk.elems, 0, 0, 0};
      if (manifest.files.empty() || filled + record.bytes() > file_size) {
        manifest.files.push_back(file_name(manifest.files.size()));
        filled = 0;
      }
      record.file = manifest.files.size() - 1;
      filled += record.bytes();
      manifest.records.push_back(record);
    }
  }
  place_records(manifest);
}

std::string header_of(const Manifest& manifest, std::size_t file) {
  std::vector<Entry> entries;
  Bytes at = 0;
  for (const Record& r : manifest.records) {
    if (r.file != file) continue;
    for (const char* part : kStateParts) {
      Entry e;
      e.name =
          fmt::format("{}/{}[{}:{}]", manifest.segments[static_cast<std::size_t>(r.segment)].name,
                      part, r.first_elem, r.end_elem());
      e.dtype = dtype_name(DType::kF32);
      e.shape = {static_cast<std::int64_t>(r.elems)};
      e.begin = at;
      e.end = at += r.elems * size_of(DType::kF32);
      entries.push_back(std::move(e));
    }
  }
  return make_header(entries, kAlignment);
}

std::vector<Bytes> file_sizes(const Manifest& manifest) {
  std::vector<Bytes> sizes(manifest.files.size());
  for (const Record& r : manifest.records) sizes[r.file] = r.offset + r.bytes();
  return sizes;
}

std::uint64_t sum_of_text(std::string_view text) {
  return nvme::sum_of(std::as_bytes(std::span(text)));
}

std::string hex(std::uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

std::string to_json(const Manifest& m) {
  nlohmann::ordered_json root = {
      {"version", kManifestVersion},
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
  for (const Record& r : m.records) {
    records.push_back({{"segment", r.segment},
                       {"first", r.first_elem},
                       {"elems", r.elems},
                       {"file", r.file},
                       {"offset", r.offset},
                       {"xxh3", hex(r.sum)}});
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
