#include "engine/checkpoint/state_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/companions.h"
#include "engine/checkpoint/file.h"
#include "engine/checkpoint/state_writer.h"
#include "engine/shape/hf_config.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kMostBeside = 1_GiB;

[[noreturn]] void damaged(const fs::path& path, std::string_view reason) {
  throw Error(Errc::kCheckpoint, fmt::format("{}: {}; the checkpoint is not whole: go on from "
                                             "another one",
                                             path.string(), reason));
}

std::string text_of(const fs::path& path, Bytes most) {
  std::error_code none;
  if (!fs::exists(path, none)) damaged(path, "is not there");
  if (!fs::is_regular_file(path, none)) damaged(path, "is no file");
  try {
    return read_text(path, most);
  } catch (const Error& e) {
    if (e.code == Errc::kFormat) throw Error(Errc::kCheckpoint, e.what());
    throw;
  }
}

std::string shape_of(const TensorPlace& tensor) {
  return fmt::format("{} [{}]", tensor.name, fmt::join(tensor.shape, ", "));
}

/// The first thing that two layouts do not share, in words; empty: none.
std::string difference(const std::vector<SegmentPlace>& saved,
                       const std::vector<SegmentPlace>& wanted) {
  for (std::size_t s = 0; s < std::min(saved.size(), wanted.size()); ++s) {
    const SegmentPlace& a = saved[s];
    const SegmentPlace& b = wanted[s];
    for (std::size_t t = 0; t < std::min(a.tensors.size(), b.tensors.size()); ++t) {
      if (a.tensors[t] == b.tensors[t]) continue;
      return fmt::format("it has {} where the run has {}", shape_of(a.tensors[t]),
                         shape_of(b.tensors[t]));
    }
    if (a != b) {
      return fmt::format("its '{}' has {} tensors in {} elements, the run's '{}' {} in {}", a.name,
                         a.tensors.size(), a.elems, b.name, b.tensors.size(), b.elems);
    }
  }
  if (saved.size() == wanted.size()) return {};
  return fmt::format("it has {} segments, the run {}", saved.size(), wanted.size());
}

}  // namespace

Manifest read_manifest(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) damaged(folder, "is no folder of a checkpoint");
  constexpr Bytes kMostComplete = 64;
  const std::string complete = text_of(folder / kCompleteName, kMostComplete);
  const fs::path path = folder / kManifestName;
  const std::string text = text_of(path, kMaxManifest);
  if (complete != hex(sum_of_text(text)) + "\n") {
    damaged(path, fmt::format("is not what {} was written for", kCompleteName));
  }
  return parse_manifest(text, path.string());
}

StateReader::StateReader(const fs::path& folder, const nvme::Options& queue)
    : folder_(folder), manifest_(read_manifest(folder)) {
  check_files();
  std::vector<std::string> paths;
  for (const std::string& name : manifest_.files) paths.push_back((folder_ / name).string());
  files_ = std::make_unique<nvme::UnalignedFiles>(paths, nvme::Access::kRead, queue);
}

void StateReader::check_files() const {
  for (const auto& [name, sum] : manifest_.beside) {
    const fs::path path = folder_ / kModelFolder / name;
    if (sum_of_text(text_of(path, kMostBeside)) != sum) damaged(path, "is not what was written");
  }
  const std::vector<Bytes> sizes = file_sizes(manifest_);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const fs::path path = folder_ / manifest_.files[i];
    std::error_code none;
    if (!fs::is_regular_file(path, none)) damaged(path, "is not there");
    const File file = File::open(path);
    if (file.size() != sizes[i]) {
      damaged(path, fmt::format("has {} bytes, not {}", file.size(), sizes[i]));
    }
    const std::string expected = header_of(manifest_, i);
    std::string header(expected.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(header)));
    if (header != expected) damaged(path, "has another header than was written");
  }
}

void StateReader::check_model(const shape::Model& model) const {
  const std::string what = difference(manifest_.segments, places_of(model));
  SLUICE_CHECK(what.empty(), kConfig,
               fmt::format("{}: is of another model: {}; name that one, or begin anew "
                           "(train.resume=never)",
                           folder_.string(), what));
  SLUICE_CHECK(this->model().decoder == model.decoder, kConfig,
               fmt::format("{}: is of a model of the same shapes whose config.json says something "
                           "else (heads, norms, positions, ...): compare it with yours, or begin "
                           "anew (train.resume=never)",
                           (folder_ / kModelFolder / "config.json").string()));
}

shape::Model StateReader::model() const {
  const fs::path folder = folder_ / kModelFolder;
  try {
    const Companions companions = read_companions(folder);
    shape::Model model = shape::make_model(
        shape::from_config(*companions.config, fmt::format("{}: config", folder.string())));
    const std::string what = difference(manifest_.segments, places_of(model));
    SLUICE_CHECK(what.empty(), kCheckpoint,
                 fmt::format("{}: its state is of another model than its config.json: {}",
                             folder_.string(), what));
    return model;
  } catch (const Error& e) {
    if (e.code != Errc::kConfig && e.code != Errc::kFormat) throw;
    throw Error(Errc::kCheckpoint, e.what());
  }
}

std::vector<StateReader::Piece> StateReader::pieces(RecordKind kind, int segment,
                                                    std::uint64_t first_elem,
                                                    std::uint64_t elems) const {
  std::vector<Piece> pieces;
  const std::vector<Record>& records = manifest_.of(kind);
  const std::uint64_t end = first_elem + elems;
  const auto end_of = [](const Record& r) { return std::pair(r.segment, r.end_elem()); };
  auto r = std::ranges::upper_bound(records, std::pair(segment, first_elem), {}, end_of);
  for (; r != records.end() && r->segment == segment && r->first_elem < end; ++r) {
    const std::uint64_t begin = std::max(first_elem, r->first_elem);
    pieces.push_back({static_cast<std::size_t>(r - records.begin()), begin,
                      std::min(end, r->end_elem()) - begin});
  }
  return pieces;
}

Ticket StateReader::read(RecordKind kind, DType dtype, int segment, std::uint64_t first_elem,
                         std::span<std::byte> chunk) const {
  const std::size_t parts = parts_of(kind).size();
  const Bytes width = size_of(dtype);
  const std::uint64_t elems = chunk.size() / (parts * width);
  std::uint64_t found = 0;
  std::vector<nvme::Range> ranges;
  for (const Piece& piece : pieces(kind, segment, first_elem, elems)) {
    const Record& r = manifest_.of(kind)[piece.record];
    for (std::size_t part = 0; part < parts; ++part) {
      const std::uint64_t from = part * r.elems + (piece.first_elem - r.first_elem);
      const std::uint64_t to = part * elems + (piece.first_elem - first_elem);
      ranges.push_back({r.file, r.offset + from * width, piece.elems * width,
                        chunk.subspan(to * width, piece.elems * width).data()});
    }
    found += piece.elems;
  }
  SLUICE_CHECK(found == elems, kLogic,
               fmt::format("{}: elements [{}:{}] of segment {} were asked, it has {} of them",
                           folder_.string(), first_elem, first_elem + elems, segment, found));
  return files_->read(ranges);
}

Ticket StateReader::read(int segment, std::uint64_t first_elem, std::span<float> state) const {
  return read(RecordKind::kState, DType::kF32, segment, first_elem, std::as_writable_bytes(state));
}

Ticket StateReader::read_gradient(int segment, std::uint64_t first_elem,
                                  std::span<std::byte> gradient) const {
  return read(RecordKind::kGradient, gradient_dtype(segment), segment, first_elem, gradient);
}

const Record& StateReader::gradient_of(int segment) const {
  const auto r = std::ranges::lower_bound(manifest_.gradients, segment, {}, &Record::segment);
  SLUICE_CHECK(r != manifest_.gradients.end() && r->segment == segment, kLogic,
               fmt::format("{}: has no gradient of segment {}", folder_.string(), segment));
  return *r;
}

std::string StateReader::describe(const Record& r) const {
  return fmt::format("{}: the {} of {}[{}:{}], {} at byte {}",
                     (folder_ / manifest_.files[r.file]).string(),
                     r.kind == RecordKind::kState ? "record" : "gradient",
                     manifest_.segments[static_cast<std::size_t>(r.segment)].name, r.first_elem,
                     r.end_elem(), format_bytes(r.bytes()), r.offset);
}

RecordSums::RecordSums(const StateReader& reader)
    : reader_(reader),
      sums_{std::vector<Sum>(reader.manifest().records.size()),
            std::vector<Sum>(reader.manifest().gradients.size())} {}

std::vector<std::size_t> RecordSums::compare(RecordKind kind, int segment, std::uint64_t first_elem,
                                             std::span<const std::byte> chunk, std::size_t begin,
                                             std::size_t end) {
  std::vector<std::size_t> damaged;
  const std::uint64_t from = first_elem + begin;
  for (const auto& piece : reader_.pieces(kind, segment, from, end - begin)) {
    const Record& r = reader_.manifest().of(kind)[piece.record];
    const std::size_t at = piece.first_elem - first_elem;
    Sum& own = sums_[static_cast<std::size_t>(kind)][piece.record];
    // In this order: whoever completes the count sees all of the sum.
    own.sum += sum_of_grains(kind, r.dtype, first_elem, chunk, at, at + piece.elems);
    const bool whole = (own.elems += piece.elems) == r.elems;
    if (whole && own.sum != r.sum) damaged.push_back(piece.record);
  }
  return damaged;
}

std::string RecordSums::damage(RecordKind kind, std::size_t record) const {
  const Record& r = reader_.manifest().of(kind)[record];
  return fmt::format(
      "{} is not what was written (XXH3 {}, not {}); the checkpoint is damaged: go on from "
      "another one",
      reader_.describe(r), hex(sums_[static_cast<std::size_t>(kind)][record].sum), hex(r.sum));
}

void RecordSums::check(RecordKind kind, const std::vector<std::size_t>& damaged) const {
  SLUICE_CHECK(damaged.empty(), kCheckpoint, damage(kind, damaged.front()));
}

void RecordSums::add(int segment, std::uint64_t first_elem, std::span<const float> state,
                     std::size_t begin, std::size_t end) {
  check(RecordKind::kState,
        compare(RecordKind::kState, segment, first_elem, std::as_bytes(state), begin, end));
}

void RecordSums::add_gradient(int segment, std::uint64_t first_elem,
                              std::span<const std::byte> gradient, std::size_t begin,
                              std::size_t end) {
  check(RecordKind::kGradient,
        compare(RecordKind::kGradient, segment, first_elem, gradient, begin, end));
}

}  // namespace sluice::checkpoint
