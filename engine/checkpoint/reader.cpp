#include "engine/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/index.h"

namespace sluice::checkpoint {
namespace {

constexpr std::size_t kStagingElems = 256 * 1024;

struct Parsed {
  std::vector<Entry> entries;
  Bytes data;  // where the data begins
};

Parsed read_header(const File& file) {
  const std::string name = file.path().string();
  const Bytes size = file.size();
  std::uint64_t length = 0;
  SLUICE_CHECK(size >= sizeof length, kFormat,
               fmt::format("{}: {} bytes are no safetensors file", name, size));
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const Bytes most = std::min(kMaxHeader, size - sizeof length);
  SLUICE_CHECK(length <= most, kFormat,
               fmt::format("{}: claims a header of {} bytes, at most {} can be; it is damaged, or "
                           "no safetensors file",
                           name, length, most));
  std::string text(length, '\0');
  file.read(sizeof length, std::as_writable_bytes(std::span(text)));
  const Bytes data = sizeof length + length;
  return {parse_header(text, size - data, name), data};
}

std::string read_text(const std::filesystem::path& path) {
  const File file = File::open(path);
  const Bytes size = file.size();
  SLUICE_CHECK(size <= kMaxHeader, kFormat,
               fmt::format("{}: {} is too long for a list of tensors (at most {})", path.string(),
                           format_bytes(size), format_bytes(kMaxHeader)));
  std::string text(size, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

Reader::Reader(const std::filesystem::path& file_or_folder) : path_(file_or_folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path_, ignored)) {
    add(path_);
  } else if (std::filesystem::exists(path_ / kIndexName, ignored)) {
    add_indexed(path_);
  } else {
    add(path_ / shard_name(0, 1));
  }
}

void Reader::add(const std::filesystem::path& path) {
  files_.push_back(File::open(path));
  auto [entries, data] = read_header(files_.back());
  for (Entry& e : entries) {
    std::string name = e.name;
    const bool fresh =
        tensors_.emplace(std::move(name), Located{e, files_.size() - 1, data}).second;
    SLUICE_CHECK(fresh, kFormat,
                 fmt::format("{}: tensor '{}' is in another file too", path.string(), e.name));
  }
}

void Reader::add_indexed(const std::filesystem::path& folder) {
  const std::filesystem::path index = folder / kIndexName;
  const WeightMap weights = parse_index(read_text(index), index.string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : weights) files.insert(file);
  for (const std::string& file : files) add(folder / file);

  for (const auto& [tensor, file] : weights) {
    const auto at = tensors_.find(tensor);
    SLUICE_CHECK(at != tensors_.end() && files_[at->second.file].path().filename() == file, kFormat,
                 fmt::format("{}: tensor '{}' is not in {} as it says; copy the folder again",
                             index.string(), tensor, file));
  }
  for (const auto& [tensor, located] : tensors_) {
    SLUICE_CHECK(weights.contains(tensor), kFormat,
                 fmt::format("{}: does not list tensor '{}' of {}; copy the folder again",
                             index.string(), tensor, files_[located.file].path().string()));
  }
}

std::vector<std::string> Reader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, located] : tensors_) names.push_back(name);
  return names;
}

bool Reader::contains(std::string_view name) const {
  return tensors_.find(name) != tensors_.end();
}

const Reader::Located& Reader::locate(std::string_view name) const {
  const auto at = tensors_.find(name);
  SLUICE_CHECK(at != tensors_.end(), kFormat,
               fmt::format("{}: has no tensor '{}'", path_.string(), name));
  return at->second;
}

const Entry& Reader::entry(std::string_view name) const {
  return locate(name).entry;
}

std::vector<float> Reader::read(std::string_view name) const {
  const Entry& e = entry(name);
  std::vector<float> out(e.numel());
  read(name, 0, out);
  return out;
}

void Reader::read(std::string_view name, std::uint64_t first, std::span<float> out) const {
  const Located& t = locate(name);
  const std::uint64_t numel = t.entry.numel();
  SLUICE_CHECK(
      first <= numel && out.size() <= numel - first, kLogic,
      fmt::format("{} elements at {} leave tensor '{}' of {}", out.size(), first, name, numel));
  const auto dtype = dtype_of(t.entry.dtype);
  const File& file = files_[t.file];
  SLUICE_CHECK(dtype, kFormat,
               fmt::format("{}: tensor '{}' is {}; only F32 and BF16 are read: convert it",
                           file.path().string(), name, t.entry.dtype));
  Bytes at = t.data + t.entry.begin + first * size_of(*dtype);
  if (*dtype == DType::kF32) {
    file.read(at, std::as_writable_bytes(out));
    return;
  }
  std::vector<Bf16> staging(std::min(out.size(), kStagingElems));
  while (!out.empty()) {
    const auto piece = std::span(staging).first(std::min(out.size(), staging.size()));
    file.read(at, std::as_writable_bytes(piece));
    std::transform(piece.begin(), piece.end(), out.begin(), to_float);
    at += piece.size_bytes();
    out = out.subspan(piece.size());
  }
}

}  // namespace sluice::checkpoint
