#include "engine/train/batches.h"

#include <algorithm>
#include <vector>

namespace sluice::train {

void Batches::load(Tag tag, std::int64_t micro_batch, std::span<std::int64_t> tokens,
                   std::span<std::int64_t> targets) const {
  const bool evaluation = tag.kind == Tag::Kind::kEvaluation;
  const data::Dataset& data = evaluation ? *valid_ : train_;
  const auto seq = static_cast<std::size_t>(data.seq_len());
  std::vector<std::int64_t> sample(seq + 1);
  for (std::int64_t b = 0; b < micro_batch_size_; ++b) {
    const std::int64_t in_program = micro_batch * micro_batch_size_ + b;
    const std::int64_t drawn = tag.step * micro_batches_ * micro_batch_size_ + in_program;
    data.sample(evaluation ? in_program : sampler_.at(static_cast<std::uint64_t>(drawn)), sample);
    const std::size_t at = static_cast<std::size_t>(b) * seq;
    std::copy_n(sample.begin(), seq, tokens.begin() + static_cast<std::ptrdiff_t>(at));
    std::copy_n(sample.begin() + 1, seq, targets.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace sluice::train
