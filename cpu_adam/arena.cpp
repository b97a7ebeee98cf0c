#include "cpu_adam/arena.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <algorithm>

#include "engine/base/threads.h"

// Never compiled with -fsanitize=thread (see CMakeLists.txt): half of oneTBB is in its headers,
// half in a library that the sanitizer cannot look into, so every task would be reported as a race.

namespace sluice::cpu_adam {
namespace {

unsigned machine_cores() {
  return static_cast<unsigned>(std::max(1, tbb::info::default_concurrency()));
}

class ThreadNames : public tbb::task_scheduler_observer {
 public:
  explicit ThreadNames(tbb::task_arena& arena) : tbb::task_scheduler_observer(arena) {
    observe(true);
  }
  ~ThreadNames() override { observe(false); }
  void on_scheduler_entry(bool is_worker) override {
    if (is_worker) name_this_thread("cpu adam");
  }
};

}  // namespace

struct Arena::Parts {
  // oneTBB keeps to the cores of the machine unless it is told otherwise.
  explicit Parts(unsigned threads)
      : limit(tbb::global_control::max_allowed_parallelism, std::max(threads, machine_cores())),
        arena(static_cast<int>(threads)),
        names(arena) {}

  tbb::global_control limit;
  tbb::task_arena arena;
  ThreadNames names;
};

Arena::Arena(unsigned threads) : parts_(std::make_unique<Parts>(threads)) {}

Arena::~Arena() = default;

void Arena::run(RangeJob& job, std::size_t count, std::size_t at_least) const {
  using Range = tbb::blocked_range<std::size_t>;
  parts_->arena.execute([&job, count, at_least] {
    tbb::parallel_for(Range(0, count, at_least),
                      [&job](const Range& range) { job.run(range.begin(), range.end()); });
  });
}

}  // namespace sluice::cpu_adam
