/// Ends a run in which an op hangs: nothing else would.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/executor/driver.h"
#include "engine/memory/slot_memory.h"
#include "engine/train/options.h"

namespace sluice::train {

/// For how long each op has run, and how long one may: `watchdog.step`, or auto: twenty times the
/// longest step so far, the simulated one among them, and at least ten minutes. That is generous to
/// any op: those of evaluations and of the first and last programs are no longer than a step's.
///
/// Time counts only where looks come as they should: a process that was stopped, or a machine that
/// was asleep, has not been slow.
///
/// Thread  one at a time; without a clock
class Patience {
 public:
  /// `forecast_s`: seconds of a step; 0 = not known.
  Patience(const WatchdogOptions& options, double forecast_s, Nanos now);

  struct Overdue {
    executor::Running op;
    Nanos ran;  ///< so far
  };
  /// `running`: of the driver, at `now`. The op that has run for too long, the longest of them.
  std::optional<Overdue> look(Nanos now, const std::vector<executor::Running>& running);
  void step_took(Nanos now, Nanos took);
  Nanos limit() const;

 private:
  void pass(Nanos now);

  const std::optional<Nanos> given_;
  Nanos longest_step_;
  Nanos last_look_;
  Nanos awake_ = 0;       // since the start
  Nanos step_began_ = 0;  // as `awake_` was
  std::map<prefetch::OpRef, Nanos> began_;
};

/// Looks once a second. Says aloud which op hangs and where its bytes lie, what else runs, and
/// where every thread is; then calls `on_hang` with a kWatchdog error, once.
///
/// Owns    a thread, named "watchdog", that the destructor joins; driver and memory must outlive it
/// Thread  one
class Watchdog {
 public:
  /// Throws  kEnv where there can be no other thread
  Watchdog(const WatchdogOptions& options, double forecast_s, const executor::Driver& driver,
           const memory::SlotMemory& memory, std::function<void(const Error&)> on_hang);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void step_took(Nanos took);

 private:
  void watch();
  std::optional<Error> look();

  const executor::Driver& driver_;
  const memory::SlotMemory& memory_;
  const std::function<void(const Error&)> on_hang_;
  std::mutex mutex_;  // guards the rest
  Patience patience_;
  bool ending_ = false;
  std::condition_variable ends_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace sluice::train
