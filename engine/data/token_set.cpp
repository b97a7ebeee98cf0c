#include "engine/data/token_set.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/data/descriptor.h"
#include "engine/data/excerpt.h"
#include "engine/data/paths.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kAgain = "run `sluice data tokenize` again";

/// Recursion over what is nested deeper than any manifest would end the stack.
bool refuse_nested(int depth, json::parse_event_t event, json&) {
  using Event = json::parse_event_t;
  constexpr int kDeepest = 8;
  const bool begins = event == Event::object_start || event == Event::array_start;
  SLUICE_CHECK(!begins || depth < kDeepest, kFormat,
               fmt::format("nested more than {} deep", kDeepest));
  return true;
}

/// `change`: what to do about a file that is refused.
json parse(const fs::path& path, const std::string& change) {
  constexpr std::uint64_t kLargest = 64_MiB;
  const Descriptor file(path.string(), O_RDONLY);
  SLUICE_CHECK(file.size() <= kLargest, kFormat,
               fmt::format("{}: {} bytes, a manifest has at most 64 MiB; {}", path.string(),
                           file.size(), change));
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  try {
    return json::parse(text, refuse_nested, /*allow_exceptions=*/false);
  } catch (const Error& error) {
    throw Error(error.code, fmt::format("{}: {}; {}", path.string(), error.what(), change));
  }
}

/// The manifest, whose values are looked at one by one.
class Manifest {
 public:
  Manifest(fs::path path, const std::string& change)
      : path_(std::move(path)), values_(parse(path_, change)) {
    SLUICE_CHECK(values_.is_object() && values_.contains("sluice_tokens"), kFormat,
                 fmt::format("{}: is damaged, or no manifest of tokens (docs/data.md); {}",
                             path_.string(), change));
    SLUICE_CHECK(number("sluice_tokens") == kVersion, kFormat,
                 fmt::format("{}: version {} of the format, this program knows {}; {}",
                             path_.string(), number("sluice_tokens"), kVersion, kAgain));
  }

  std::int64_t number(const char* key) const { return number(values_, key); }
  std::int64_t number(const json& from, const char* key) const {
    constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
    const auto at = from.find(key);
    const bool fine =
        at != from.end() && at->is_number_unsigned() && at->get<std::uint64_t>() <= kLargest;
    SLUICE_CHECK(fine, kFormat,
                 fmt::format("{}: '{}' is no whole number from 0 to 2^63 - 1; {}", path_.string(),
                             key, kAgain));
    return at->get<std::int64_t>();
  }
  bool flag(const char* key) const {
    const auto at = values_.find(key);
    SLUICE_CHECK(
        at != values_.end() && at->is_boolean(), kFormat,
        fmt::format("{}: '{}' is neither true nor false; {}", path_.string(), key, kAgain));
    return at->get<bool>();
  }
  std::string text(const char* key) const { return text(values_, key); }
  std::string text(const json& from, const char* key) const {
    const auto at = from.find(key);
    const bool fine = at != from.end() && at->is_string();
    SLUICE_CHECK(fine, kFormat,
                 fmt::format("{}: '{}' is no text; {}", path_.string(), key, kAgain));
    return at->get<std::string>();
  }
  bool has(const char* key) const { return values_.contains(key); }
  /// Null where the manifest has none.
  const json::array_t* sources() const {
    const auto at = values_.find("sources");
    SLUICE_CHECK(at == values_.end() || at->is_array(), kFormat,
                 fmt::format("{}: 'sources' is no list; {}", path_.string(), kAgain));
    return at == values_.end() ? nullptr : at->get_ptr<const json::array_t*>();
  }
  /// Paths in it begin at its folder.
  fs::path path_of(const std::string& named) const { return path_.parent_path() / named; }
  std::string name() const { return path_.string(); }

 private:
  fs::path path_;
  json values_;
};

TokenDType dtype_of(const Manifest& manifest) {
  const std::string dtype = manifest.text("dtype");
  if (dtype == "uint16") return TokenDType::kUint16;
  SLUICE_CHECK(dtype == "uint32", kFormat,
               fmt::format("{}: ids of type \"{}\"; {}", manifest.name(), excerpt(dtype), kAgain));
  return TokenDType::kUint32;
}

/// A file of the set, which must hold `count` values of `width` bytes.
Descriptor open_holding(const fs::path& path, std::int64_t count, std::uint64_t width) {
  Descriptor file(path.string(), O_RDONLY);
  const std::uint64_t bytes = file.size();
  SLUICE_CHECK(bytes % width == 0 && bytes / width == static_cast<std::uint64_t>(count), kFormat,
               fmt::format("{}: {} bytes, its manifest says {} values of {} bytes; {}",
                           path.string(), bytes, count, width, kAgain));
  return file;
}

std::vector<std::int64_t> read_ends(const fs::path& path, std::int64_t documents,
                                    std::int64_t tokens) {
  static_assert(std::endian::native == std::endian::little);
  const Descriptor file = open_holding(path, documents, sizeof(std::int64_t));
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

/// The numbers of the set, which bound one another before anything is as large as they say.
void read_counts(const Manifest& manifest, const std::string& token_file, TokenSet& set) {
  const std::int64_t tokens = manifest.number("tokens");
  const std::int64_t documents = manifest.number("documents");
  open_holding(token_file, tokens, set.dtype == TokenDType::kUint16 ? 2 : 4);
  set.targets = manifest.number("targets");
  SLUICE_CHECK(documents <= tokens && set.targets <= tokens, kFormat,
               fmt::format("{}: {} documents and {} targets of {} tokens; {}", manifest.name(),
                           documents, set.targets, tokens, kAgain));
  set.ends = read_ends(fs::path(token_file).replace_extension(".documents"), documents, tokens);
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

void check_sources(const Manifest& manifest) {
  const json::array_t* sources = manifest.sources();
  if (sources == nullptr) return;
  for (const json& source : *sources) check_source(manifest, source);
}

std::string mask_of(const Manifest& manifest, const fs::path& mask, bool is_there) {
  if (manifest.flag("masked")) {
    open_holding(mask, manifest.number("tokens"), 1);
    return mask.string();
  }
  SLUICE_CHECK(!is_there, kFormat,
               fmt::format("{}: is there and {} says that it is not; {}", mask.string(),
                           manifest.name(), kAgain));
  return {};
}

}  // namespace

std::optional<TokenSet> read_token_set(const std::string& token_file) {
  if (ending_of(token_file) != ".bin") return std::nullopt;
  const auto beside = [&](const char* ending) {
    return fs::path(token_file).replace_extension(ending);
  };
  const bool has_ends = fs::exists(status_of(beside(".documents")));
  const bool has_mask = fs::exists(status_of(beside(".mask")));
  if (!fs::exists(status_of(beside(".json")))) {
    SLUICE_CHECK(!has_ends && !has_mask, kFormat,
                 fmt::format("{} is there and {} is not: the set is not complete; {}",
                             beside(has_ends ? ".documents" : ".mask").string(),
                             beside(".json").string(), kAgain));
    return std::nullopt;
  }
  const bool is_sure = has_ends || has_mask;  // files that nothing but a token set has
  const Manifest manifest(beside(".json"),
                          is_sure ? kAgain : "move it away to take the .bin as bare ids");
  TokenSet set;
  set.dtype = dtype_of(manifest);
  set.vocab = manifest.number("vocab");
  read_counts(manifest, token_file, set);
  set.mask = mask_of(manifest, beside(".mask"), has_mask);
  if (manifest.has("tokenizer")) set.tokenizer = manifest.path_of(manifest.text("tokenizer"));
  if (manifest.has("tokenizer_sha256")) set.tokenizer_sum = manifest.text("tokenizer_sha256");
  check_sources(manifest);
  return set;
}

}  // namespace sluice::data
