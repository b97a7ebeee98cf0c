#include "engine/data/dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/data/glob.h"
#include "engine/data/paths.h"
#include "engine/data/token_set.h"

namespace sluice::data {
namespace {

DataFormat format_of(const std::string& path) {
  const std::string ending = ending_of(path);
  if (ending == ".bin" || ending == ".npy") return DataFormat::kTokens;
  constexpr std::array kRecords = {".jsonl", ".ndjson", ".json", ".parquet"};
  SLUICE_CHECK(std::ranges::find(kRecords, ending) == kRecords.end(), kConfig,
               fmt::format("{}: {} files are tokenized first: `./sluice data tokenize {} --model "
                           "FOLDER -o NAME`, then name NAME.bin here; or set data.format: text to "
                           "train on its bytes as they are",
                           path, ending, path));
  constexpr std::array kNeither = {".npz",  ".arrow",       ".gz",        ".zst",  ".xz", ".bz2",
                                   ".zip",  ".tar",         ".pdf",       ".gguf", ".pt", ".pth",
                                   ".ckpt", ".safetensors", ".documents", ".mask"};
  SLUICE_CHECK(std::ranges::find(kNeither, ending) == kNeither.end(), kConfig,
               fmt::format("{}: {} files are not read (docs/data.md); write its tokens to a .bin "
                           "file, or set data.format: text to train on its bytes as they are",
                           path, ending));
  return DataFormat::kText;
}

DataFormat common_format(const DataOptions& options, const std::vector<std::string>& paths) {
  if (options.format != DataFormat::kAuto) return options.format;
  const DataFormat format = format_of(paths.front());
  for (const std::string& path : paths) {
    SLUICE_CHECK(
        format_of(path) == format, kConfig,
        fmt::format("data: {} and {} are text and token ids and do not mix; name one kind, "
                    "or set data.format",
                    paths.front(), path));
  }
  return format;
}

}  // namespace

/// What the token sets among the files say.
struct Dataset::Sets {
  std::vector<std::int64_t> ends;
  std::int64_t targets = 0;
  std::string summed;  ///< the file whose tokenizer's sum is kept
};

Dataset::Dataset(const DataOptions& options, const std::vector<std::string>& globs,
                 std::int64_t vocab)
    : seq_len_(options.seq_len), vocab_(vocab) {
  SLUICE_CHECK(seq_len_ >= 1, kConfig,
               fmt::format("data.seq_len: {} tokens make no sample; 1 or more", seq_len_));
  SLUICE_CHECK(vocab_ >= 1, kConfig, fmt::format("a vocabulary of {} holds no token", vocab_));
  const std::vector<std::string> paths = expand_globs(globs);
  const DataFormat format = common_format(options, paths);
  is_text_ = format == DataFormat::kText;
  if (is_text_) vocab_ = std::min<std::int64_t>(vocab_, 256);

  Sets sets;
  for (const std::string& path : paths) add(path, options, format, sets);
  if (!sets.ends.empty()) {
    cut(sets, options);
  } else {
    SLUICE_CHECK(tokens() - 1 >= seq_len_, kConfig,
                 fmt::format("one sample needs {} tokens (data.seq_len + 1), but the {} file(s) "
                             "from {} on hold {}; name more files or lower data.seq_len",
                             static_cast<std::uint64_t>(seq_len_) + 1, paths.size(), paths.front(),
                             tokens()));
  }
  scan();
}

void Dataset::add(const std::string& path, const DataOptions& options, DataFormat format,
                  Sets& sets) {
  const auto set = is_text_ ? std::nullopt : read_token_set(path);
  if (!set) return row_.add({path, format, options.token_dtype, vocab_}, {});
  const std::int64_t first = tokens();
  SLUICE_CHECK(
      first == (sets.ends.empty() ? 0 : sets.ends.back()), kConfig,
      fmt::format("{}: a token set (docs/data.md), which does not mix with the bare ids of "
                  "{}; tokenize all of the data, or name one kind",
                  path, row_.files().front().ids.path()));
  if (set->vocab > vocab_) {
    log::warning(
        fmt::format("{}: its tokenizer has {} tokens, the model {}: an id beyond that ends "
                    "the run",
                    path, set->vocab, vocab_));
  }
  row_.add({path, format, set->dtype, vocab_}, options.mask_prompt ? set->mask : std::string());
  for (const std::int64_t end : set->ends) sets.ends.push_back(first + end);
  sets.targets += set->targets;
  tokenizer_ = set->tokenizer;
  if (set->tokenizer_sum.empty()) return;
  SLUICE_CHECK(
      tokenizer_sum_.empty() || tokenizer_sum_ == set->tokenizer_sum, kConfig,
      fmt::format("{} and {}: token sets of different tokenizers (tokenizer_sha256) do not mix; "
                  "tokenize all of the data with one",
                  sets.summed, path));
  tokenizer_sum_ = set->tokenizer_sum;
  sets.summed = path;
}

void Dataset::cut(const Sets& sets, const DataOptions& options) {
  SLUICE_CHECK(sets.ends.back() == tokens(), kConfig,
               fmt::format("{}: bare token ids, which do not mix with token sets (docs/data.md); "
                           "tokenize all of the data, or name one kind",
                           files().back().ids.path()));
  documents_.emplace(row_, sets.ends, seq_len_, options.packing);
  const std::int64_t targets = documents_->counts().targets;
  SLUICE_CHECK(!options.mask_prompt || targets == sets.targets, kFormat,
               fmt::format("the masks of the {} token set(s) from {} on mark {} targets, their "
                           "manifests say {}; run `sluice data tokenize` again",
                           files().size(), files().front().ids.path(), targets, sets.targets));
}

void Dataset::scan() const {
  Bytes all = 0;
  for (const TokenRow::File& file : files()) {
    all += static_cast<Bytes>(file.ids.tokens()) * static_cast<Bytes>(file.ids.width());
  }
  if (all >= kScanLimit) return;
  for (const TokenRow::File& file : files()) file.ids.check();
}

std::int64_t Dataset::samples() const noexcept {
  return documents_ ? documents_->samples() : (tokens() - 1) / seq_len_;
}

std::int64_t Dataset::targets(std::int64_t k) const {
  return documents_ ? documents_->targets(k) : seq_len_;
}

void Dataset::sample(std::int64_t k, Sample into) const {
  SLUICE_CHECK(k >= 0 && k < samples(), kLogic,
               fmt::format("sample {} of a dataset with {}", k, samples()));
  SLUICE_CHECK(std::ssize(into.tokens) == seq_len_, kLogic,
               fmt::format("{} places for the {} of a sample", into.tokens.size(), seq_len_));
  if (documents_) return documents_->sample(row_, k, into);
  std::vector<std::int64_t> both(static_cast<std::size_t>(seq_len_) + 1);
  row_.read(k * seq_len_, both);
  std::copy(both.begin(), both.end() - 1, into.tokens.begin());
  std::copy(both.begin() + 1, both.end(), into.targets.begin());
  std::iota(into.positions.begin(), into.positions.end(), 0);
}

}  // namespace sluice::data
