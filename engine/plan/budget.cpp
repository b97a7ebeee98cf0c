#include "engine/plan/budget.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "prefetch/simulate.h"

namespace sluice::plan {

void Budget::spend(std::uint64_t work) {
  SLUICE_CHECK(affords(work), kLogic,
               fmt::format("planning took {} units of work, {} were left", work, left_));
  left_ -= work;
}

std::uint64_t work_of(const prefetch::Program& program) {
  std::uint64_t work = program.ops().size();
  for (std::size_t op = 0; op < program.ops().size(); ++op) {
    const auto& names = program.accesses(op);
    work += names.reads.size() + names.writes.size();
  }
  return work;
}

std::uint64_t work_of(const Plan& draft) {
  std::uint64_t work = 0;
  for (const auto& program : draft.programs.in_order()) work += work_of(*program);
  return work;
}

std::uint64_t work_of_trial(const Plan& draft) {
  return prefetch::kSteadySteps * work_of(*draft.programs.step);
}

std::uint64_t most_work(const schedule::Setup& setup, std::int64_t evaluation_batches) {
  // Ops with the leaves that they name, of all programs together. A whole segment is as many leaves
  // as it has chunks.
  constexpr std::uint64_t kPerChunk = 60;  // first values, state, update, publishing, saving
  constexpr std::uint64_t kPerUse = 24;    // a segment in one micro-batch: its fetch, its gradient
  constexpr std::uint64_t kPerForward = 32;  // a block in one micro-batch: there and back
  constexpr std::uint64_t kPerSegment = 8;   // its decision
  constexpr std::uint64_t kOfDelayed = 3;    // steps of three kinds, and two kinds of checkpoint
  constexpr std::uint64_t kPerUseOnly = 8;   // the same two where it goes there only: to evaluate
  constexpr std::uint64_t kPerForwardOnly = 10;
  constexpr std::uint64_t kGradients = 2;  // times that a gradient is named whole per micro-batch

  const auto micro_batches = static_cast<std::uint64_t>(setup.micro_batches);
  const auto batches = static_cast<std::uint64_t>(evaluation_batches);
  const auto together = static_cast<std::uint64_t>(setup.sweep);
  // Where weights are streamed, only the fetch names the segment at home.
  const auto passes = [&](std::uint64_t n) {
    return setup.streams_params() ? div_ceil(n, together) : n;
  };
  const std::uint64_t weights = 2 * passes(micro_batches) + passes(batches);
  std::uint64_t work = 0;
  for (std::size_t s = 0; s < setup.chunks.size(); ++s) {
    const std::uint64_t chunks = setup.chunks[s].size();
    const auto uses = static_cast<std::uint64_t>(setup.uses[s]);
    work += kPerChunk * chunks + (setup.decides_by_segment() ? kPerSegment : 0);
    work += uses * chunks * (weights + kGradients * micro_batches);
    work += uses * (kPerUse * micro_batches + kPerUseOnly * batches);
  }
  work += setup.model->blocks.size() * (kPerForward * micro_batches + kPerForwardOnly * batches);
  return setup.delays() ? kOfDelayed * work : work;
}

}  // namespace sluice::plan
