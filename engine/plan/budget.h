/// How much work planning may do. A private header of this room.
///
/// Counted, not timed, so that a plan does not depend on how busy the machine is. A unit is an op,
/// or a leaf that it names, each time that it is written or simulated: 0.1 to 0.27 us, measured.
#pragma once

#include <cstdint>

#include "engine/plan/plan.h"

namespace sluice::plan {

/// One draft takes no more than this, or it is refused: three seconds, and up to 3 GB.
inline constexpr std::uint64_t kLongestDraft = 10'000'000;

class Budget {
 public:
  explicit Budget(std::uint64_t work) : left_(work) {}

  std::uint64_t left() const { return left_; }
  bool affords(std::uint64_t work) const { return work <= left_; }
  /// Throws kLogic when it does not afford them.
  void spend(std::uint64_t work);

 private:
  std::uint64_t left_;
};

/// Units of a program.
std::uint64_t work_of(const prefetch::Program& program);
/// Of all programs of a draft: what writing it took.
std::uint64_t work_of(const Plan& draft);
/// Of one simulated steady step.
std::uint64_t work_of_trial(const Plan& draft);
/// No draft of this setup takes more, as far as can be said before it is written.
std::uint64_t most_work(const schedule::Setup& setup, std::int64_t evaluation_batches);

}  // namespace sluice::plan
