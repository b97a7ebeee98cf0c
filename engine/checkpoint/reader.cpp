#include "engine/checkpoint/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ranges>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/index.h"

namespace sluice::checkpoint {
namespace {

// What read() holds of a file at a time.
constexpr Bytes kReadBytes = 64_KiB;

struct Parsed {
  std::vector<Entry> entries;
  Bytes data;  // where the data begins
};

/// What to do about one, whatever it is called.
Error pickle(const std::filesystem::path& path) {
  return {Errc::kFormat,
          fmt::format("{}: is a pickle of torch, which may run programs when it is read; load it "
                      "in transformers and save it again with save_pretrained, which writes "
                      "safetensors",
                      path.string())};
}

/// By its first bytes: torch's archive, or what torch wrote before there was one.
bool begins_like_a_pickle(std::uint64_t first_bytes) {
  constexpr std::uint64_t kZip = 0x04034b50;
  const std::uint64_t protocol = first_bytes >> 8 & 0xff;
  return (first_bytes & 0xffffffff) == kZip ||
         ((first_bytes & 0xff) == 0x80 && protocol >= 2 && protocol <= 5);
}

Parsed read_header(const File& file) {
  const std::string name = file.path().string();
  const Bytes size = file.size();
  std::uint64_t length = 0;
  SLUICE_CHECK(size >= sizeof length, kFormat,
               fmt::format("{}: {} bytes are no safetensors file", name, size));
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const Bytes most = std::min(kMaxHeader, size - sizeof length);
  if (length > most && begins_like_a_pickle(length)) throw pickle(file.path());
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
void widen_halves(const std::byte* raw, std::span<float> out) {
  std::array<Half, 1024> halves;  // the file aligns nothing
  while (!out.empty()) {
    const std::size_t n = std::min(halves.size(), out.size());
    std::memcpy(halves.data(), raw, n * sizeof(Half));
    std::transform(halves.begin(), halves.begin() + static_cast<std::ptrdiff_t>(n), out.begin(),
                   [](Half x) { return to_float(x); });
    raw += n * sizeof(Half);
    out = out.subspan(n);
  }
}

void copy_floats(const std::byte* raw, std::span<float> out) {
  std::memcpy(out.data(), raw, out.size_bytes());
}

struct Readable {
  std::string_view dtype;
  Bytes width;
  void (*widen)(const std::byte* raw, std::span<float> out);
};
constexpr std::array kReadable = {Readable{"F32", 4, copy_floats},
                                  Readable{"BF16", 2, widen_halves<Bf16>},
                                  Readable{"F16", 2, widen_halves<Fp16>}};

const Readable& readable(const Entry& entry, const File& file) {
  const auto* const found = std::ranges::find(kReadable, entry.dtype, &Readable::dtype);
  SLUICE_CHECK(found != kReadable.end(), kFormat,
               fmt::format("{}: tensor '{}' is {}; only {} are read: convert it",
                           file.path().string(), entry.name, entry.dtype,
                           fmt::join(kReadable | std::views::transform(&Readable::dtype), ", ")));
  return *found;
}

/// Of a folder without safetensors.
Error no_weights(const std::filesystem::path& folder) {
  constexpr std::array<std::string_view, 4> kOfTorch = {".bin", ".pt", ".pth", ".ckpt"};
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string ending = file.path().extension().string();
    if (std::ranges::find(kOfTorch, ending) != kOfTorch.end()) return pickle(file.path());
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
  std::error_code ignored;
  for (const std::string& file : files) {
    SLUICE_CHECK(std::filesystem::exists(folder / file, ignored), kIo,
                 fmt::format("{}: names {}, which is not there; copy the folder again",
                             index.string(), file));
    add(folder / file);
  }

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

const std::filesystem::path& Reader::file_of(std::string_view name) const {
  return files_[locate(name).file].path();
}

void Reader::check_readable(std::string_view name) const {
  const Located& t = locate(name);
  readable(t.entry, files_[t.file]);
}

std::vector<float> Reader::read(std::string_view name) const {
  const Entry& e = entry(name);
  std::vector<float> out(e.numel());
  read(name, 0, out);
  return out;
}

void Reader::read(std::string_view name, std::uint64_t first, std::span<float> out) const {
  const Stretch at = stretch_of(name, first, out.size());
  const Bytes width = out.empty() ? 1 : at.bytes / out.size();
  std::array<std::byte, kReadBytes> raw;
  for (Bytes done = 0; done < at.bytes; done += raw.size()) {
    const auto piece = std::span(raw).first(std::min(raw.size(), at.bytes - done));
    files_[at.file].read(at.offset + done, piece);
    widen(name, piece.data(), out.subspan(done / width, piece.size() / width));
  }
}

Stretch Reader::stretch_of(std::string_view name, std::uint64_t first, std::uint64_t count) const {
  const Located& t = locate(name);
  const std::uint64_t numel = t.entry.numel();
  SLUICE_CHECK(first <= numel && count <= numel - first, kLogic,
               fmt::format("{} elements at {} leave tensor '{}' of {}", count, first, name, numel));
  const Bytes width = readable(t.entry, files_[t.file]).width;
  return {t.file, t.data + t.entry.begin + first * width, count * width};
}

void Reader::widen(std::string_view name, const std::byte* raw, std::span<float> out) const {
  const Located& t = locate(name);
  readable(t.entry, files_[t.file]).widen(raw, out);
}

}  // namespace sluice::checkpoint
