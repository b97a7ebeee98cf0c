#include "engine/data/bigram.h"

#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kLargestVocab = std::int64_t{1} << 32;

std::uint64_t pair_key(std::int64_t token, std::int64_t next) {
  return static_cast<std::uint64_t>(token) << 32 | static_cast<std::uint64_t>(next);
}

template <class Key>
double count_of(const std::unordered_map<Key, double>& counts, Key key) {
  const auto it = counts.find(key);
  return it == counts.end() ? 0.0 : it->second;
}

std::vector<std::int64_t> room_for_sample(const Dataset& data) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(data.seq_len()) + 1);
}

}  // namespace

Bigram::Bigram(std::int64_t vocab) : vocab_(static_cast<double>(vocab)) {
  SLUICE_CHECK(vocab >= 1 && vocab <= kLargestVocab, kLogic,
               fmt::format("a bigram model of {} tokens", vocab));
}

void Bigram::count(std::span<const std::int64_t> tokens) {
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    pairs_[pair_key(tokens[i - 1], tokens[i])] += 1;
    firsts_[tokens[i - 1]] += 1;
  }
}

double Bigram::nats(std::int64_t token, std::int64_t next) const {
  return std::log((count_of(firsts_, token) + vocab_) /
                  (count_of(pairs_, pair_key(token, next)) + 1));
}

double bigram_loss(const Dataset& train, const Dataset& valid, std::int64_t samples) {
  SLUICE_CHECK(
      train.vocab() == valid.vocab(), kLogic,
      fmt::format("a bigram model of {} tokens for data of {}", train.vocab(), valid.vocab()));
  SLUICE_CHECK(samples >= 1 && samples <= valid.samples(), kLogic,
               fmt::format("a loss over {} of {} samples", samples, valid.samples()));
  Bigram model(train.vocab());
  std::vector<std::int64_t> seen = room_for_sample(train);
  for (std::int64_t k = 0; k < train.samples(); ++k) {
    train.sample(k, seen);
    model.count(seen);
  }

  double sum = 0;
  std::vector<std::int64_t> tokens = room_for_sample(valid);
  for (std::int64_t k = 0; k < samples; ++k) {
    valid.sample(k, tokens);
    for (std::size_t i = 1; i < tokens.size(); ++i) sum += model.nats(tokens[i - 1], tokens[i]);
  }
  return sum / (static_cast<double>(samples) * static_cast<double>(valid.seq_len()));
}

}  // namespace sluice::data
