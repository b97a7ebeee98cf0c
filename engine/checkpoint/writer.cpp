#include "engine/checkpoint/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/header.h"
#include "engine/shape/hf_config.h"

namespace sluice::checkpoint {
namespace {

// Rounded and given to the drive at a time: small enough for a cache, large enough for a drive,
// which has so many of them at once.
constexpr Bytes kPieceBytes = 2_MiB;
constexpr std::size_t kSlots = 8;

// Room for config.json, the index and the file system's own needs.
constexpr Bytes kSpareSpace = 1_MiB;

/// One tensor on its way into a file: which of the model, and its line of the header.
struct Item {
  int segment;
  int tensor;
  Entry entry;
};

std::vector<Item> items_of(const shape::Model& model, DType dtype) {
  std::vector<Item> items;
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    const auto& tensors = model.segments[s].tensors;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      Entry e;
      e.name = tensors[t].name;
      e.dtype = dtype_name(dtype);
      e.shape = tensors[t].shape;
      e.end = tensors[t].numel() * size_of(dtype);
      items.push_back({static_cast<int>(s), static_cast<int>(t), std::move(e)});
    }
  }
  return items;
}

/// Fills files in the order of the model; within a file the tensors lie by name, as the reference
/// writer puts them.
std::vector<std::vector<Item>> shards_of(std::vector<Item> items, Bytes shard_size) {
  std::vector<std::vector<Item>> shards(1);
  Bytes filled = 0;
  for (Item& item : items) {
    const Bytes size = item.entry.end;
    if (!shards.back().empty() && filled + size > shard_size) {
      shards.emplace_back();
      filled = 0;
    }
    filled += size;
    shards.back().push_back(std::move(item));
  }
  for (auto& shard : shards) {
    std::sort(shard.begin(), shard.end(),
              [](const Item& a, const Item& b) { return a.entry.name < b.entry.name; });
    Bytes at = 0;
    for (Item& item : shard) {
      item.entry.begin = at;
      item.entry.end += at;
      at = item.entry.end;
    }
  }
  return shards;
}

std::string header_of(const std::vector<Item>& shard) {
  std::vector<Entry> entries;
  for (const Item& item : shard) entries.push_back(item.entry);
  return make_header(entries);
}

}  // namespace

void in_one_piece(std::size_t count,
                  const std::function<void(std::size_t begin, std::size_t end)>& work) {
  work(0, count);
}

Writer::Writer(const shape::Model& model, DType dtype, const std::filesystem::path& folder,
               Bytes shard_size, Companions companions, Each each, const nvme::Options& queue)
    : decoder_(model.decoder),
      companions_(std::move(companions)),
      dtype_(dtype),
      folder_(folder),
      each_(std::move(each)),
      slots_(kSlots) {
  for (const shape::Segment& s : model.segments) {
    zero::Layout layout = zero::make_layout(s);
    std::vector<Place> places(layout.tensors.size());
    segments_.push_back({s, std::move(layout), std::move(places), {}});
  }
  const auto shards = shards_of(items_of(model, dtype), shard_size);
  for (const auto& shard : shards) total_ += shard.back().entry.end;
  check_free_space(folder_.path(), total_ + size_of(companions_) + kSpareSpace, "weights");
  copy_files(companions_, folder_.path());  // now: the folder they are in may be gone at the end

  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    const std::string header = header_of(shards[i]);
    File& file = files_.emplace_back(File::create(folder_.path() / name));
    file.reserve(header.size() + shards[i].back().entry.end);
    file.write(0, std::as_bytes(std::span(header)));
    for (const Item& item : shards[i]) {
      segments_[static_cast<std::size_t>(item.segment)]
          .places[static_cast<std::size_t>(item.tensor)] = {i, header.size() + item.entry.begin};
      weights_.emplace(item.entry.name, name);
    }
  }
  drive_.emplace(paths_of(files_), nvme::Access::kReadWrite, as_it_works_in(folder_.path(), queue));
}

void Writer::check_open(std::string_view asked) const {
  SLUICE_CHECK(state_ == State::kOpen, kLogic,
               fmt::format("{}: {} after {}", folder_.target().string(), asked,
                           state_ == State::kFinished ? "finish()" : "an error"));
}

void Writer::write(int segment, std::uint64_t first_elem, std::span<const float> master_values) {
  write_values(segment, first_elem, master_values);
}

void Writer::write_rounded(int segment, std::uint64_t first_elem,
                           std::span<const std::uint16_t> values) {
  SLUICE_CHECK(size_of(dtype_) == sizeof(std::uint16_t), kLogic,
               fmt::format("numbers of 16 bits for a file of {}", name_of(dtype_)));
  write_values(segment, first_elem, values);
}

template <class T>
void Writer::write_values(int segment, std::uint64_t first_elem, std::span<const T> values) {
  check_open("write()");
  SLUICE_CHECK(segment >= 0 && static_cast<std::size_t>(segment) < segments_.size(), kLogic,
               fmt::format("segment {} of {}", segment, segments_.size()));
  SegmentPlan& s = segments_[static_cast<std::size_t>(segment)];
  const std::uint64_t count = values.size();
  SLUICE_CHECK(first_elem <= s.layout.elems && count <= s.layout.elems - first_elem, kLogic,
               fmt::format("{} elements at {} leave segment '{}' of {}", count, first_elem,
                           s.segment.name(), s.layout.elems));
  SLUICE_CHECK(s.written.add(first_elem, count), kLogic,
               fmt::format("{} elements at {} of segment '{}' overlap what is written", count,
                           first_elem, s.segment.name()));
  state_ = State::kBroken;  // until all of it is in the file
  for (std::size_t i = 0; i < s.layout.tensors.size(); ++i) {
    const zero::Placed& p = s.layout.tensors[i];
    const std::uint64_t begin = std::max(first_elem, p.offset_elems);
    const std::uint64_t end = std::min(first_elem + count, p.end());
    if (begin >= end) continue;
    put(s.places[i], begin - p.offset_elems, values.subspan(begin - first_elem, end - begin));
  }
  state_ = State::kOpen;
}

// Rounded by all. In order: drives and filesystems like that best. A piece ends with a block of the
// file where it can: only whole ones are the queue's.
template <class T>
void Writer::put(const Place& place, std::uint64_t first, std::span<const T> values) {
  Bytes at = place.offset + first * size_of(dtype_);
  while (!values.empty()) {
    const Bytes most = kPieceBytes - at % kAlignment;
    const auto piece = values.first(std::min(values.size(), most / size_of(dtype_)));
    Slot& slot = next_slot();
    const nvme::Range range{place.file, at, piece.size() * size_of(dtype_), slot.room.get()};
    round_to(range.data().data(), piece);
    slot.written = drive_->write(range);
    at += range.bytes;
    values = values.subspan(piece.size());
  }
}

/// The one that was given to the drive first, once that has taken it.
Writer::Slot& Writer::next_slot() {
  Slot& next = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % slots_.size();
  next.written.wait();
  if (next.room == nullptr) next.room = nvme::allocate_aligned(kPieceBytes);
  return next;
}

/// `out` is aligned as the file's bytes are.
void Writer::round_to(std::byte* out, std::span<const float> values) const {
  each_(values.size(), [&](std::size_t begin, std::size_t end) {
    const auto part = values.subspan(begin, end - begin);
    std::byte* const to = out + begin * size_of(dtype_);
    switch (dtype_) {
      case DType::kF32:
        std::memcpy(to, part.data(), part.size_bytes());
        break;
      case DType::kBf16:
        std::ranges::transform(part, reinterpret_cast<Bf16*>(to), to_bf16);
        break;
      case DType::kF16:
        std::ranges::transform(part, reinterpret_cast<Fp16*>(to), to_fp16);
        break;
    }
  });
}

void Writer::round_to(std::byte* out, std::span<const std::uint16_t> rounded) const {
  each_(rounded.size(), [&](std::size_t begin, std::size_t end) {
    std::memcpy(out + begin * sizeof(std::uint16_t), &rounded[begin],
                (end - begin) * sizeof(std::uint16_t));
  });
}

void Writer::check_complete() const {
  for (const SegmentPlan& s : segments_) {
    for (const zero::Placed& p : s.layout.tensors) {
      const auto missing = s.written.first_missing(p.offset_elems, p.end());
      SLUICE_CHECK(!missing, kLogic,
                   fmt::format("{}: element {} of tensor '{}' was never written",
                               folder_.target().string(), *missing - p.offset_elems,
                               s.segment.tensors[static_cast<std::size_t>(p.tensor)].name));
    }
  }
}

std::string Writer::config_text() const {
  nlohmann::json config =
      companions_.config ? *companions_.config : shape::to_config_json(decoder_);
  set_dtype(config, dtype_);
  return config.dump(2) + "\n";
}

void Writer::finish() {
  check_open("finish()");
  state_ = State::kBroken;
  check_complete();
  for (const Slot& slot : slots_) slot.written.wait();
  for (File& file : files_) file.sync();
  write_text(folder_.path() / "config.json", config_text());
  if (files_.size() > 1) write_text(folder_.path() / kIndexName, make_index(weights_, total_));
  drive_.reset();
  files_.clear();
  folder_.publish();
  state_ = State::kFinished;
}

}  // namespace sluice::checkpoint
