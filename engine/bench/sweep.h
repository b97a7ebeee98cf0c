/// Which points are measured, how long, how often and in which order: arithmetic only, no I/O.
///
/// First a coarse grid; then what lies around the best points; then the best ones again, longer and
/// several times. How fine the grid is follows from the time. The order is shuffled, so that a
/// drive that slows down as it warms up does not punish the same points each time.
///
/// Thread  any
#pragma once

#include <cstdint>
#include <vector>

#include "engine/bench/point.h"

namespace sluice::bench {

/// What a sweep has to go by.
struct Terms {
  std::vector<nvme::Engine> engines;
  std::vector<Traffic> traffics;
  double seconds = 300;    ///< for all of it, about
  Bytes most_written = 0;  ///< by all of it
  Bytes written_else = 0;  ///< by what is no part of it, for messages
  Bytes line = 0;          ///< bytes of the target
  Bytes request = 0;       ///< bytes of a request
  double rate = 0;         ///< of the target, bytes per second, by a first look
  std::uint64_t seed = 0;
};

struct Turn {
  Point point;
  int repetition = 0;  ///< in its stage
  double seconds = 0;
  Bytes most_written = 0;
};

class Sweep {
 public:
  /// Throws  kConfig when `most_written` is too little to tell anything, with what is enough
  explicit Sweep(const Terms& terms);

  std::vector<Turn> coarse() const;
  /// Given what was measured so far.
  std::vector<Turn> finer(const std::vector<Summary>& so_far) const;
  std::vector<Turn> finals(const std::vector<Summary>& so_far) const;

  /// No more than this is written by all three.
  Bytes planned_writes() const;

 private:
  struct Stage {
    double seconds = 0;
    Bytes most_written = 0;
  };
  struct Grid {
    std::vector<Point> points;
    int repetitions = 1;
    double box_s = 0;
  };
  std::vector<Point> grid(const std::vector<Bytes>& blocks,
                          const std::vector<unsigned>& depths) const;
  bool possible(const Point& point) const;
  double overhead_s(const Point& point) const;
  double cost_s(const std::vector<Point>& points, double box_s) const;
  Bytes least_written(const std::vector<Point>& points) const;
  Stage stage(double share) const;
  Grid choose_grid() const;
  std::vector<Point> around(const Point& point) const;
  std::vector<Turn> runs(const std::vector<Point>& points, int repetitions, double box_s,
                         const Stage& stage, std::uint64_t seed) const;

  const Terms terms_;
  const Grid grid_;
};

}  // namespace sluice::bench
