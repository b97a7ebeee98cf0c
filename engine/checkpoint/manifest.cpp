#include "engine/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/zero/layout.h"
#include "nvme/sums.h"

namespace sluice::checkpoint {
namespace {

/// Files of rank 0, of one, filled in order.
void add_files(Manifest& manifest, std::vector<Record>& records, std::string_view name,
               Bytes file_size) {
  Bytes filled = 0;
  std::size_t files = 0;
  for (Record& record : records) {
    if (files == 0 || filled + record.bytes() > file_size) {
      manifest.files.push_back(fmt::format("{}-0-of-1-{}.safetensors", name, files++));
      filled = 0;
    }
    record.file = manifest.files.size() - 1;
    filled += record.bytes();
  }
}

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
  for (std::size_t s = 0; s < chunks.size(); ++s) {
    for (const zero::Chunk& chunk : chunks[s]) {
      manifest.records.push_back({static_cast<int>(s), chunk.first_elem, chunk.elems});
    }
  }
  add_files(manifest, manifest.records, "state", file_size);
  place_records(manifest);
}

void lay_out_gradients(Manifest& manifest, const std::vector<std::vector<zero::Chunk>>& chunks,
                       std::span<const DType> dtype_by_segment, Bytes file_size) {
  for (std::size_t s = 0; s < chunks.size(); ++s) {
    for (const zero::Chunk& chunk : chunks[s]) {
      Record record{static_cast<int>(s), chunk.first_elem, chunk.elems};
      record.kind = RecordKind::kGradient;
      record.dtype = dtype_by_segment[s];
      manifest.gradients.push_back(record);
    }
  }
  add_files(manifest, manifest.gradients, "gradient", file_size);
  place_records(manifest);
}

void place_records(Manifest& manifest) {
  // The header's length decides where data begins, and is known once the file's records are.
  std::vector<Bytes> at(manifest.files.size());
  for (std::size_t file = 0; file < at.size(); ++file) at[file] = header_of(manifest, file).size();
  for (auto* records : {&manifest.records, &manifest.gradients}) {
    for (Record& record : *records) {
      record.offset = at[record.file];
      at[record.file] += record.bytes();
    }
  }
}

std::string contradiction_of(const Manifest& m) {
  const bool pending = m.position.pending != Position::Pending::kNone;
  if (pending && m.gradients.empty()) return "an update is pending, without a gradient";
  if (!pending && !m.gradients.empty()) return "has gradients, and no update is pending";
  if (!std::isfinite(m.position.pending_lr)) {
    return fmt::format("the learning rate of the pending update is {}", m.position.pending_lr);
  }
  const Record* before = nullptr;
  for (const Record& r : m.gradients) {
    const std::string& name = m.segments[static_cast<std::size_t>(r.segment)].name;
    if (!std::isfinite(r.factor)) {
      return fmt::format("the factor of the gradient of segment '{}' is {}", name, r.factor);
    }
    if (before != nullptr && before->segment == r.segment) {
      if (before->dtype != r.dtype) {
        return fmt::format("the gradient of segment '{}' is {} and {}", name,
                           dtype_name(before->dtype), dtype_name(r.dtype));
      }
      if (before->factor != r.factor) {
        return fmt::format("the gradient of segment '{}' has the factors {} and {}", name,
                           before->factor, r.factor);
      }
    }
    before = &r;
  }
  return {};
}

std::string header_of(const Manifest& manifest, std::size_t file) {
  std::vector<Entry> entries;
  Bytes at = 0;
  for (const RecordKind kind : kRecordKinds) {
    for (const Record& r : manifest.of(kind)) {
      if (r.file != file) continue;
      for (const char* part : parts_of(kind)) {
        Entry e;
        e.name =
            fmt::format("{}/{}[{}:{}]", manifest.segments[static_cast<std::size_t>(r.segment)].name,
                        part, r.first_elem, r.end_elem());
        e.dtype = dtype_name(r.dtype);
        e.shape = {static_cast<std::int64_t>(r.elems)};
        e.begin = at;
        e.end = at += r.part_bytes();
        entries.push_back(std::move(e));
      }
    }
  }
  return make_header(entries, kAlignment);
}

std::vector<Bytes> file_sizes(const Manifest& manifest) {
  std::vector<Bytes> sizes(manifest.files.size());
  for (const RecordKind kind : kRecordKinds) {
    for (const Record& r : manifest.of(kind)) sizes[r.file] = r.offset + r.bytes();
  }
  return sizes;
}

std::uint64_t sum_of_text(std::string_view text) {
  return nvme::sum_of(std::as_bytes(std::span(text)));
}

std::string hex(std::uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

}  // namespace sluice::checkpoint
