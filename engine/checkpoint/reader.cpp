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

template <class Half>
void read_halves(const File& file, Bytes at, std::span<float> out) {
  std::vector<Half> staging(std::min(out.size(), kStagingElems));
  while (!out.empty()) {
    const auto piece = std::span(staging).first(std::min(out.size(), staging.size()));
    file.read(at, std::as_writable_bytes(piece));
    std::ranges::transform(piece, out.begin(), [](Half x) { return to_float(x); });
    at += piece.size_bytes();
    out = out.subspan(piece.size());
  }
}

/// Of a folder without safetensors.
Error no_weights(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!std::filesystem::exists(folder / name, ignored)) continue;
    return {Errc::kFormat,
            fmt::format("{}: is a pickle, which may run programs when it is read; load it in "
                        "transformers and save it again as safetensors",
                        (folder / name).string())};
  }
  return {Errc::kIo,
          fmt::format("{}: has no {}, and no {} of several files; is it what save_pretrained "
                      "wrote?",
                      folder.string(), shard_name(0, 1), kIndexName)};
}

}  // namespace

Reader::Reader(const std::filesystem::path& file_or_folder) : path_(file_or_folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path_, ignored)) {
    add(path_);
  } else if (std::filesystem::exists(path_ / kIndexName, ignored)) {
    add_indexed(path_);
  } else {
    const std::filesystem::path file = path_ / shard_name(0, 1);
    if (!std::filesystem::exists(file, ignored)) throw no_weights(path_);
    add(file);
  }
}

void Reader::add(const std::filesystem::path& path) {
  std::error_code ignored;
  SLUICE_CHECK(
      !std::filesystem::exists(path, ignored) || std::filesystem::is_regular_file(path, ignored),
      kFormat, fmt::format("{}: is no file that can be read", path.string()));
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
  const WeightMap weights = parse_index(read_text(index, kMaxHeader), index.string());
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
  const File& file = files_[t.file];
  const Bytes begin = t.data + t.entry.begin;
  if (t.entry.dtype == "F32") {
    file.read(begin + first * sizeof(float), std::as_writable_bytes(out));
  } else if (t.entry.dtype == "BF16") {
    read_halves<Bf16>(file, begin + first * sizeof(Bf16), out);
  } else if (t.entry.dtype == "F16") {
    read_halves<Fp16>(file, begin + first * sizeof(Fp16), out);
  } else {
    throw Error(Errc::kFormat,
                fmt::format("{}: tensor '{}' is {}; only F32, BF16 and F16 are read: convert it",
                            file.path().string(), name, t.entry.dtype));
  }
}

}  // namespace sluice::checkpoint
