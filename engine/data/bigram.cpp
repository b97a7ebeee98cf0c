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

}  // namespace

Bigram::Bigram(std::int64_t vocab) : vocab_(static_cast<double>(vocab)) {
  SLUICE_CHECK(vocab >= 1 && vocab <= kLargestVocab, kLogic,
               fmt::format("a bigram model of {} tokens", vocab));
}

void Bigram::count(const Sample& sample) {
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.targets[i] == kNoTarget) continue;
    pairs_[pair_key(sample.tokens[i], sample.targets[i])] += 1;
    firsts_[sample.tokens[i]] += 1;
  }
}

double Bigram::nats(const Sample& sample) const {
  double sum = 0;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.targets[i] != kNoTarget) sum += nats(sample.tokens[i], sample.targets[i]);
  }
  return sum;
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
  SampleBuffer sample(train.seq_len());
  for (std::int64_t k = 0; k < train.samples(); ++k) {
    train.sample(k, sample.view());
    model.count(sample.view());
  }

  double sum = 0;
  std::int64_t targets = 0;
  SampleBuffer held_out(valid.seq_len());
  for (std::int64_t k = 0; k < samples; ++k) {
    valid.sample(k, held_out.view());
    sum += model.nats(held_out.view());
    targets += valid.targets(k);
  }
  return sum / static_cast<double>(targets);
}

}  // namespace sluice::data
