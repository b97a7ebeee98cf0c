#include "engine/data/documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/base/error.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kBlock = 1 << 20;

}  // namespace

/// Counts marks from the first token on, block by block: documents are many, and short.
class Documents::Marks {
 public:
  explicit Marks(const TokenRow& row) : row_(row) {}

  /// Of tokens from `from` on, no earlier than in the call before.
  std::int32_t count(std::int64_t from, std::int64_t tokens) {
    std::int32_t sum = 0;
    while (tokens > 0) {
      if (from >= begin_ + std::ssize(block_)) load(from);
      const std::int64_t n = std::min(tokens, begin_ + std::ssize(block_) - from);
      const auto at = block_.begin() + (from - begin_);
      sum = std::accumulate(at, at + n, sum);
      from += n;
      tokens -= n;
    }
    return sum;
  }

 private:
  void load(std::int64_t from) {
    begin_ = from;
    block_.resize(static_cast<std::size_t>(std::min(kBlock, row_.tokens() - from)));
    row_.read_counts(from, block_);
  }

  const TokenRow& row_;
  std::int64_t begin_ = 0;
  std::vector<std::uint8_t> block_;
};

Documents::Documents(const TokenRow& row, std::span<const std::int64_t> ends, std::int64_t seq_len,
                     bool packed) {
  counts_.documents = std::ssize(ends);
  std::int64_t begin = 0;
  Marks marks(row);
  for (const std::int64_t end : ends) add(marks, std::exchange(begin, end), end, seq_len);
  SLUICE_CHECK(
      pieces_.size() < std::numeric_limits<std::uint32_t>::max(), kConfig,
      fmt::format("{} documents or pieces of them are more than one run takes", pieces_.size()));
  SLUICE_CHECK(!pieces_.empty(), kConfig,
               fmt::format("no token of {} documents counts as a target: look at them with "
                           "`sluice data inspect`; with data.mask_prompt: false all tokens count",
                           counts_.documents));
  counts_.pieces = std::ssize(pieces_);
  for (const Piece& piece : pieces_) {
    counts_.places += piece.places;
    counts_.targets += piece.targets;
  }
  packing_ = packed ? pack(pieces_, seq_len) : one_each(pieces_);
}

void Documents::add(Marks& marks, std::int64_t begin, std::int64_t end, std::int64_t seq_len) {
  const std::size_t before = pieces_.size();
  for (std::int64_t at = begin; at + 1 < end; at += seq_len) {
    Piece piece{at, static_cast<std::int32_t>(std::min(seq_len, end - 1 - at))};
    piece.targets = marks.count(at + 1, piece.places);
    if (piece.targets > 0) pieces_.push_back(piece);
  }
  if (end - 1 - begin > seq_len) ++counts_.cut;
  if (pieces_.size() == before) ++counts_.without;
}

std::string Documents::describe(std::int64_t seq_len) const {
  const DocumentCounts& c = counts_;
  const double all = static_cast<double>(samples()) * static_cast<double>(seq_len);
  std::string text = fmt::format(
      "{} documents in {} samples, {:.1f}% of them padding; {} of {} tokens count as targets",
      c.documents, samples(), 100 * (1 - static_cast<double>(c.places) / all), c.targets, c.places);
  if (c.cut > 0) text += fmt::format("; {} longer than a sample, cut", c.cut);
  if (c.without > 0) text += fmt::format("; {} without a target, left out", c.without);
  return text;
}

std::vector<Piece> Documents::pieces(std::int64_t k) const {
  std::vector<Piece> found;
  for (const std::uint32_t i : packing_.sample(k)) found.push_back(pieces_[i]);
  return found;
}

std::int64_t Documents::targets(std::int64_t k) const {
  std::int64_t targets = 0;
  for (const std::uint32_t i : packing_.sample(k)) targets += pieces_[i].targets;
  return targets;
}

void Documents::sample(const TokenRow& row, std::int64_t k, Sample into) const {
  std::size_t at = 0;
  for (const Piece& piece : pieces(k)) {
    const auto n = static_cast<std::size_t>(piece.places);
    std::vector<std::int64_t> tokens(n + 1);
    std::vector<std::uint8_t> counts(n);
    row.read(piece.first, tokens);
    row.read_counts(piece.first + 1, counts);
    for (std::size_t i = 0; i < n; ++i) {
      into.tokens[at + i] = tokens[i];
      into.targets[at + i] = counts[i] != 0 ? tokens[i + 1] : kNoTarget;
      into.positions[at + i] = static_cast<std::int64_t>(i);
    }
    at += n;
  }
  std::ranges::fill(into.tokens.subspan(at), 0);
  std::ranges::fill(into.targets.subspan(at), kNoTarget);
  std::iota(into.positions.begin() + static_cast<std::ptrdiff_t>(at), into.positions.end(), 0);
}

}  // namespace sluice::data
