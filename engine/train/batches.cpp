#include "engine/train/batches.h"

namespace sluice::train {
namespace {

bool is_evaluation(Tag tag) {
  return tag.kind == Tag::Kind::kEvaluation;
}

}  // namespace

const data::Dataset& Batches::data(Tag tag) const {
  return is_evaluation(tag) ? *valid_ : train_;
}

std::int64_t Batches::sample(Tag tag, std::int64_t n) const {
  if (is_evaluation(tag)) return n;
  const std::int64_t drawn = tag.step * micro_batches_ * micro_batch_size_ + n;
  return sampler_.at(static_cast<std::uint64_t>(drawn));
}

void Batches::load(Tag tag, std::int64_t micro_batch, schedule::Batch into) const {
  const auto seq = static_cast<std::size_t>(data(tag).seq_len());
  for (std::int64_t b = 0; b < micro_batch_size_; ++b) {
    const std::size_t at = static_cast<std::size_t>(b) * seq;
    data(tag).sample(sample(tag, micro_batch * micro_batch_size_ + b),
                     {into.tokens.subspan(at, seq), into.targets.subspan(at, seq),
                      into.positions.subspan(at, seq)});
  }
  schedule::mark_documents(into, seq);
  into.program_targets = targets(tag);
}

std::int64_t Batches::targets(Tag tag) const {
  const std::lock_guard lock(mutex_);
  if (!counted_ || counted_->first != tag.pack()) counted_ = {tag.pack(), count_targets(tag)};
  return counted_->second;
}

std::int64_t Batches::count_targets(Tag tag) const {
  const std::int64_t micro_batches = is_evaluation(tag) ? evaluated_ : micro_batches_;
  std::int64_t sum = 0;
  for (std::int64_t n = 0; n < micro_batches * micro_batch_size_; ++n) {
    sum += data(tag).targets(sample(tag, n));
  }
  return sum;
}

}  // namespace sluice::train
