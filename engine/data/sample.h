/// One sample: what a row of a micro-batch holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::data {

/// A place that has nothing to predict: a prompt's token, padding.
inline constexpr std::int64_t kNoTarget = -1;

/// Views, S places each.
struct Sample {
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;    ///< the token that each place is to predict, or kNoTarget
  std::span<std::int64_t> positions;  ///< in the document: 0 begins one
};

/// Memory for one.
class SampleBuffer {
 public:
  explicit SampleBuffer(std::int64_t seq_len)
      : seq_(static_cast<std::size_t>(seq_len)), ids_(3 * seq_) {}
  Sample view() {
    const std::span all(ids_);
    return {all.first(seq_), all.subspan(seq_, seq_), all.last(seq_)};
  }

 private:
  std::size_t seq_;
  std::vector<std::int64_t> ids_;
};

}  // namespace sluice::data
