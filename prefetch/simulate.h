/// A stream of programs on a virtual clock: the real scoreboard, without the machine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "prefetch/cost_model.h"
#include "prefetch/scoreboard.h"

namespace sluice::prefetch {

struct Timeline {
  struct Span {
    OpRef op;
    LaneId lane;
    double begin, end;  ///< seconds
  };
  std::vector<Span> spans;       ///< in order of their ends
  std::vector<double> finished;  ///< per program of the stream, when its last op ended
  std::vector<double> busy;      ///< per lane, seconds with at least one op running
  double seconds = 0;            ///< of the whole stream
};

/// Called by the simulator as it goes; the property tests run the "work" of an op here.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begins(const Scoreboard&, OpRef) {}
  virtual void ends(const Scoreboard&, OpRef) {}
  virtual void freed(const Freed&) {}
};

struct Simulation {
  std::shared_ptr<const Residents> residents;
  Pools pools;
  Lanes lanes;
  std::size_t max_in_flight = 2;  ///< programs appended before the oldest must have ended
  Derivations derive{};
};

/// Throws kLogic when nothing can run any more and work is left (a checked program never does
/// that).
Timeline simulate(const Simulation& machine, std::span<const std::shared_ptr<const Program>> stream,
                  const CostModel& cost, Observer* observer = nullptr);

/// One step of a long run of the same program, when beginning and end play no part.
struct SteadyStep {
  double seconds = 0;        ///< from the end of a step to the end of the next, in the middle
  std::vector<double> busy;  ///< per lane, seconds with at least one op running, the mean of all
};
/// Two steps in flight. Simulates kSteadySteps of them. The first ones have too little before them,
/// the last has nothing after it; of two in a row that share drives one may end early and the other
/// late, so that both count.
inline constexpr std::size_t kSteadySteps = 5;
inline constexpr std::size_t kFirstSteady = 2, kLastSteady = 3;
inline constexpr double kCountedSteps = kLastSteady - kFirstSteady + 1;
SteadyStep steady_step(const Simulation& machine, const std::shared_ptr<const Program>& step,
                       const CostModel& cost);

/// The same stream, one op after the other.
double serial_seconds(std::span<const std::shared_ptr<const Program>> stream,
                      const CostModel& cost);

}  // namespace sluice::prefetch
