#include "cpu_adam/workers.h"

#include <algorithm>
#include <cfenv>

#include "engine/base/units.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace sluice::cpu_adam {
namespace {

// Ranges of fewer grains are not worth a task: 4 grains are about 10 us of memory traffic.
constexpr std::size_t kTaskGrains = 4;

// oneTBB orders a caller before its workers, and these before its return. ThreadSanitizer cannot
// see that in a library that was built without it, so it is told. Nothing in other builds.
void happens_before([[maybe_unused]] void* mark) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(mark);
#endif
}
void happens_after([[maybe_unused]] void* mark) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(mark);
#endif
}

class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  std::fenv_t saved_;
};

// One call of for_grains().
class Job final : public RangeJob {
 public:
  Job(std::size_t count, const RangeWork& work) : count_(count), work_(work) {
    happens_before(&forked_);
  }
  ~Job() { happens_after(&joined_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void run(std::size_t first_grain, std::size_t last_grain) override {
    happens_after(&forked_);
    const Joined joined(*this);  // also by an exception
    const DefaultFloatingPoint guard;
    work_(first_grain * kGrainElems, std::min(last_grain * kGrainElems, count_));
  }

 private:
  class Joined {
   public:
    explicit Joined(Job& job) : job_(job) {}
    ~Joined() { happens_before(&job_.joined_); }
    Joined(const Joined&) = delete;
    Joined& operator=(const Joined&) = delete;

   private:
    Job& job_;
  };

  const std::size_t count_;
  const RangeWork& work_;
  char forked_ = 0;  // two addresses, never read
  char joined_ = 0;
};

}  // namespace

Workers::Workers(unsigned threads)
    : threads_(threads), arena_(threads > 1 ? std::make_unique<const Arena>(threads) : nullptr) {}

void Workers::for_grains(std::size_t count, const RangeWork& work) const {
  if (count == 0) return;
  const std::size_t grains = div_ceil(count, kGrainElems);
  Job job(count, work);
  if (arena_ == nullptr || grains <= kTaskGrains) {
    job.run(0, grains);
  } else {
    arena_->run(job, grains, kTaskGrains);
  }
}

}  // namespace sluice::cpu_adam
