#include "engine/data/token_set.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/data/descriptor.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kAgain = "run `sluice data tokenize` again";

/// The manifest, whose values are looked at one by one.
class Manifest {
 public:
  explicit Manifest(fs::path path) : path_(std::move(path)) {
    const Descriptor file(path_.string(), O_RDONLY);
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    values_ = json::parse(text, nullptr, /*allow_exceptions=*/false);
    SLUICE_CHECK(values_.is_object() && values_.contains("sluice_tokens"), kFormat,
                 fmt::format("{}: is no manifest of tokens (docs/data.md); move it away to take "
                             "the .bin beside it as bare ids",
                             path_.string()));
    SLUICE_CHECK(number("sluice_tokens") == kVersion, kFormat,
                 fmt::format("{}: version {} of the format, this program knows {}; {}",
                             path_.string(), number("sluice_tokens"), kVersion, kAgain));
  }

  std::int64_t number(const char* key) const { return number(values_, key); }
  std::int64_t number(const json& from, const char* key) const {
    const auto at = from.find(key);
    const bool fine = at != from.end() && at->is_number_integer() && *at >= 0;
    SLUICE_CHECK(fine, kFormat,
                 fmt::format("{}: '{}' is no number; {}", path_.string(), key, kAgain));
    return at->get<std::int64_t>();
  }
  std::string text(const json& from, const char* key) const {
    const auto at = from.find(key);
    const bool fine = at != from.end() && at->is_string();
    SLUICE_CHECK(fine, kFormat,
                 fmt::format("{}: '{}' is no text; {}", path_.string(), key, kAgain));
    return at->get<std::string>();
  }
  /// Paths in it begin at its folder.
  fs::path path_of(const std::string& named) const { return path_.parent_path() / named; }
  const json& values() const { return values_; }
  std::string name() const { return path_.string(); }

 private:
  fs::path path_;
  json values_;
};

TokenDType dtype_of(const Manifest& manifest) {
  const std::string dtype = manifest.text(manifest.values(), "dtype");
  if (dtype == "uint16") return TokenDType::kUint16;
  SLUICE_CHECK(dtype == "uint32", kFormat,
               fmt::format("{}: ids of type {}; {}", manifest.name(), dtype, kAgain));
  return TokenDType::kUint32;
}

/// A file beside the token file, which must have this size.
Descriptor open_beside(const fs::path& path, std::uint64_t bytes) {
  Descriptor file(path.string(), O_RDONLY);
  SLUICE_CHECK(file.size() == bytes, kFormat,
               fmt::format("{}: {} bytes, its manifest says {}; {}", path.string(), file.size(),
                           bytes, kAgain));
  return file;
}

std::vector<std::int64_t> read_ends(const fs::path& path, std::int64_t documents,
                                    std::int64_t tokens) {
  static_assert(std::endian::native == std::endian::little);
  const std::uint64_t bytes = static_cast<std::uint64_t>(documents) * sizeof(std::int64_t);
  const Descriptor file = open_beside(path, bytes);
  std::vector<std::int64_t> ends(static_cast<std::size_t>(documents));
  file.read(0, std::as_writable_bytes(std::span(ends)));
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    SLUICE_CHECK(
        end > begin, kFormat,
        fmt::format("{}: a document from token {} to {}; {}", path.string(), begin, end, kAgain));
    begin = end;
  }
  SLUICE_CHECK(begin == tokens, kFormat,
               fmt::format("{}: the last document ends at token {} of {}; {}", path.string(), begin,
                           tokens, kAgain));
  return ends;
}

void check_source(const Manifest& manifest, const json& source) {
  const fs::path path = manifest.path_of(manifest.text(source, "path"));
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0) return;  // a set may be used without what it was made from
  const std::int64_t bytes = manifest.number(source, "bytes");
  SLUICE_CHECK(now.st_size == bytes, kFormat,
               fmt::format("{}: has {} bytes, {} when {} was made from it; {}", path.string(),
                           static_cast<std::int64_t>(now.st_size), bytes, manifest.name(), kAgain));
  const std::int64_t modified =
      now.st_mtim.tv_sec * std::int64_t{1'000'000'000} + now.st_mtim.tv_nsec;
  if (modified == manifest.number(source, "modified_ns")) return;
  log::warning(
      fmt::format("{}: was touched since {} was made from it; if its content has changed, "
                  "{}",
                  path.string(), manifest.name(), kAgain));
}

}  // namespace

std::optional<TokenSet> read_token_set(const std::string& token_file) {
  fs::path beside = token_file;
  if (beside.extension() != ".bin" || !fs::exists(beside.replace_extension(".json"))) {
    return std::nullopt;
  }
  const Manifest manifest(beside);
  TokenSet set;
  set.dtype = dtype_of(manifest);
  set.vocab = manifest.number("vocab");
  const std::int64_t tokens = manifest.number("tokens");
  open_beside(token_file,
              static_cast<std::uint64_t>(tokens) * (set.dtype == TokenDType::kUint16 ? 2 : 4));
  set.ends =
      read_ends(beside.replace_extension(".documents"), manifest.number("documents"), tokens);
  const json& values = manifest.values();
  if (values.value("masked", json(false)) == json(true)) {
    set.mask = beside.replace_extension(".mask").string();
    open_beside(set.mask, static_cast<std::uint64_t>(tokens));
  }
  if (values.contains("tokenizer")) {
    set.tokenizer = manifest.path_of(manifest.text(values, "tokenizer")).string();
  }
  for (const json& source : values.value("sources", json::array())) check_source(manifest, source);
  return set;
}

}  // namespace sluice::data
