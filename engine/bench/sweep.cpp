#include "engine/bench/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <random>
#include <set>
#include <tuple>

#include "engine/base/error.h"

namespace sluice::bench {
namespace {

// How the time is shared out.
constexpr double kCoarse = 0.55, kFiner = 0.15, kFinals = 0.3;

constexpr double kShortestBox = 0.3, kLongestBox = 10;  // seconds
constexpr double kGoodBox = 0.8;   // from here on more repetitions are worth more than more time
constexpr double kFinalBox = 1.5;  // rather than more, another finalist
constexpr int kMostRepetitions = 3;
constexpr int kFinerRepetitions = 2;
constexpr int kFinalRepetitions = 3;
constexpr std::size_t kMostFinalists = 12;

/// A point may be so much faster than the first look before its time is cut short.
constexpr double kFasterThanLook = 1.3;
/// Making a queue and pinning its memory.
constexpr double kSetUp = 0.1;
/// Of a point in each direction. More takes memory, and says nothing new.
constexpr Bytes kMostInFlight = 128_MiB;
/// What is in flight must be done again within this time.
constexpr double kLongestQueue = 0.5;

struct Axes {
  std::vector<Bytes> blocks;
  std::vector<unsigned> depths;
};

/// From fine to coarse.
const std::vector<Axes>& all_axes() {
  static const std::vector<Axes> axes = {
      {{128_KiB, 256_KiB, 512_KiB, 1_MiB, 2_MiB, 4_MiB, 8_MiB, 16_MiB},
       {1, 2, 4, 8, 16, 32, 64, 128}},
      {{128_KiB, 512_KiB, 1_MiB, 4_MiB, 16_MiB}, {1, 4, 16, 32, 64}},
      {{256_KiB, 1_MiB, 4_MiB}, {4, 16, 64}},
      {{512_KiB, 2_MiB}, {4, 16, 64}},
      {{1_MiB}, {8, 32}}};
  return axes;
}

bool writes(const Point& point) {
  return point.traffic != Traffic::kRead;
}

std::size_t writers(const std::vector<Point>& points) {
  return static_cast<std::size_t>(std::ranges::count_if(points, writes));
}

using Key = std::tuple<nvme::Engine, Bytes, unsigned, Traffic>;
Key key_of(const Point& point) {
  return {point.engine, point.block, point.depth, point.traffic};
}

/// The best first.
std::vector<Summary> ranked(const std::vector<Summary>& summaries, Traffic traffic) {
  std::vector<Summary> of_kind;
  for (const Summary& summary : summaries) {
    if (summary.point.traffic == traffic) of_kind.push_back(summary);
  }
  std::ranges::stable_sort(of_kind, std::greater<>(), &Summary::rate);
  return of_kind;
}

/// Points in the order of their worth, each once.
class Wanted {
 public:
  void add(const Point& point) {
    if (seen_.insert(key_of(point)).second) points_.push_back(point);
  }
  const std::vector<Point>& points() const { return points_; }

 private:
  std::set<Key> seen_;
  std::vector<Point> points_;
};

/// The best of each engine, the fastest engine first.
std::vector<Point> best_of_engines(const std::vector<Summary>& summaries, Traffic traffic) {
  std::set<nvme::Engine> seen;
  std::vector<Point> best;
  for (const Summary& summary : ranked(summaries, traffic)) {
    if (seen.insert(summary.point.engine).second) best.push_back(summary.point);
  }
  return best;
}

/// What decides comes first: mixed traffic.
std::vector<Traffic> by_worth(std::vector<Traffic> traffics) {
  std::ranges::sort(traffics, std::greater<>());
  return traffics;
}

/// Of what decides the best of each engine, since a single run of an engine says little; the
/// fastest of each other kind; then the next ones, and the other engines.
std::vector<Point> finalists(const std::vector<Summary>& so_far,
                             const std::vector<Traffic>& traffics) {
  Wanted wanted;
  const auto take = [&](Traffic traffic, std::size_t n) {
    const std::vector<Summary> best = ranked(so_far, traffic);
    for (std::size_t i = 0; i < std::min(n, best.size()); ++i) wanted.add(best[i].point);
  };
  const std::vector<Traffic> kinds = by_worth(traffics);
  for (const Point& point : best_of_engines(so_far, kinds.front())) wanted.add(point);
  for (const Traffic traffic : kinds) take(traffic, 1);
  take(kinds.front(), 3);
  for (const Traffic traffic : kinds) {
    for (const Point& point : best_of_engines(so_far, traffic)) wanted.add(point);
  }
  std::vector<Point> points = wanted.points();
  points.resize(std::min(points.size(), kMostFinalists));
  return points;
}

}  // namespace

Sweep::Sweep(const Terms& terms) : terms_(terms), grid_(choose_grid()) {}

bool Sweep::possible(const Point& point) const {
  const Bytes parts = point.traffic == Traffic::kMixed ? 2 : 1;
  const Bytes room = terms_.line / terms_.request / parts;
  return point.block <= terms_.request && point.in_flight() <= kMostInFlight &&
         requests_at_a_time(point, terms_.request) < room &&
         static_cast<double>(point.in_flight()) <= kLongestQueue * terms_.rate;
}

/// Besides its box: what is still in flight at the end, and comparing what was read.
double Sweep::overhead_s(const Point& point) const {
  const auto in_flight =
      static_cast<double>(requests_at_a_time(point, terms_.request) * terms_.request);
  return kSetUp + (point.traffic == Traffic::kMixed ? 2 : 1) * in_flight / terms_.rate;
}

double Sweep::cost_s(const std::vector<Point>& points, double box_s) const {
  double cost = 0;
  for (const Point& point : points) cost += box_s + overhead_s(point);
  return cost;
}

/// Each point that writes fills its queue twice: less says nothing.
Bytes Sweep::least_written(const std::vector<Point>& points) const {
  Bytes least = 0;
  for (const Point& point : points) {
    if (writes(point)) {
      least = std::max(least, 2 * requests_at_a_time(point, terms_.request) * terms_.request);
    }
  }
  return least * writers(points);
}

Sweep::Stage Sweep::stage(double share) const {
  const double in_time = share * terms_.seconds * terms_.rate * kFasterThanLook;
  const double allowed = share * static_cast<double>(terms_.most_written);
  return {share * terms_.seconds, static_cast<Bytes>(std::min(in_time, allowed))};
}

std::vector<Point> Sweep::grid(const std::vector<Bytes>& blocks,
                               const std::vector<unsigned>& depths) const {
  std::vector<Point> points;
  for (const nvme::Engine engine : terms_.engines) {
    for (const Traffic traffic : terms_.traffics) {
      for (const Bytes block : blocks) {
        for (const unsigned depth : depths) {
          const Point point{engine, block, depth, traffic};
          if (possible(point)) points.push_back(point);
        }
      }
    }
  }
  return points;
}

/// The finest that time and bytes allow.
Sweep::Grid Sweep::choose_grid() const {
  const Stage stage = this->stage(kCoarse);
  std::vector<Point> points;
  for (const Axes& axes : all_axes()) {
    points = grid(axes.blocks, axes.depths);
    if (cost_s(points, kShortestBox) <= stage.seconds &&
        least_written(points) <= stage.most_written) {
      break;
    }
  }
  if (points.empty())
    points = grid({kAlignment * 16}, {1, 4});  // a very slow drive, or a tiny line
  SLUICE_CHECK(!points.empty(), kConfig,
               fmt::format("a file of {} is too small to be measured; name a larger one",
                           format_bytes(terms_.line)));
  const Bytes least =
      static_cast<Bytes>(static_cast<double>(least_written(points)) / kCoarse) + kAlignment;
  SLUICE_CHECK(least <= terms_.most_written || writers(points) == 0, kConfig,
               fmt::format("--max-write leaves {} for this sweep, which needs {} or more: raise it "
                           "(several drives share it), or use --read-only",
                           format_bytes(terms_.most_written + terms_.written_else),
                           format_bytes(least + terms_.written_else)));
  Grid chosen{points, 1, 0};
  chosen.repetitions =
      std::clamp(static_cast<int>(stage.seconds / cost_s(points, kGoodBox)), 1, kMostRepetitions);
  while (chosen.repetitions > 1 &&
         static_cast<Bytes>(chosen.repetitions) * least_written(points) > stage.most_written) {
    --chosen.repetitions;
  }
  const double each = stage.seconds / static_cast<double>(chosen.repetitions);
  const double box_s = (each - cost_s(points, 0)) / static_cast<double>(points.size());
  chosen.box_s = std::clamp(box_s, std::min(kShortestBox, terms_.seconds / 10), kLongestBox);
  return chosen;
}

std::vector<Turn> Sweep::runs(const std::vector<Point>& points, int repetitions, double box_s,
                              const Stage& stage, std::uint64_t seed) const {
  const std::size_t writing = writers(points) * static_cast<std::size_t>(repetitions);
  const Bytes each = writing == 0 ? 0 : stage.most_written / writing;
  const auto in_time = static_cast<Bytes>(box_s * terms_.rate * kFasterThanLook);
  std::mt19937_64 random(terms_.seed + seed);
  std::vector<Turn> all;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::vector<Point> order = points;
    std::ranges::shuffle(order, random);
    for (const Point& point : order) {
      const Bytes full = 2 * requests_at_a_time(point, terms_.request) * terms_.request;
      const Bytes most = round_down(std::min(each, std::max(in_time, full)), kAlignment);
      all.push_back({point, repetition, box_s, writes(point) ? most : 0});
    }
  }
  return all;
}

std::vector<Turn> Sweep::coarse() const {
  return runs(grid_.points, grid_.repetitions, grid_.box_s, stage(kCoarse), 0);
}

/// Half and twice of one thing at a time.
std::vector<Point> Sweep::around(const Point& point) const {
  std::vector<Point> near;
  const auto add = [&](Bytes block, unsigned depth) {
    const Point other{point.engine, block, depth, point.traffic};
    if (block >= kAlignment && depth >= 1 && depth <= nvme::kMaxQueueDepth && possible(other)) {
      near.push_back(other);
    }
  };
  add(point.block, point.depth / 2);
  add(point.block, point.depth * 2);
  add(point.block / 2, point.depth);
  add(point.block * 2, point.depth);
  return near;
}

std::vector<Turn> Sweep::finer(const std::vector<Summary>& so_far) const {
  std::set<Key> known;
  for (const Summary& summary : so_far) known.insert(key_of(summary.point));
  Wanted wanted;
  for (const Traffic traffic : by_worth(terms_.traffics)) {
    for (const Point& best : best_of_engines(so_far, traffic)) {
      wanted.add(best);
      for (const Point& near : around(best)) {
        if (!known.contains(key_of(near))) wanted.add(near);
      }
    }
  }
  const Stage stage = this->stage(kFiner);
  std::vector<Point> points;
  for (const Point& point : wanted.points()) {
    points.push_back(point);
    if (kFinerRepetitions * cost_s(points, grid_.box_s) <= stage.seconds &&
        kFinerRepetitions * least_written(points) <= stage.most_written) {
      continue;
    }
    points.pop_back();
    break;
  }
  return runs(points, kFinerRepetitions, grid_.box_s, stage, 1);
}

std::vector<Turn> Sweep::finals(const std::vector<Summary>& so_far) const {
  const Stage stage = this->stage(kFinals);
  const double least_s = std::max(grid_.box_s, std::min(2 * grid_.box_s, kFinalBox));
  std::vector<Point> points = finalists(so_far, terms_.traffics);
  while (points.size() > 2 && (kFinalRepetitions * cost_s(points, least_s) > stage.seconds ||
                               kFinalRepetitions * least_written(points) > stage.most_written)) {
    points.pop_back();
  }
  if (points.empty()) return {};
  const double each = stage.seconds / kFinalRepetitions - cost_s(points, 0);
  const double box_s =
      std::clamp(each / static_cast<double>(points.size()), grid_.box_s, kLongestBox);
  return runs(points, kFinalRepetitions, box_s, stage, 2);
}

Bytes Sweep::planned_writes() const {
  if (std::ranges::none_of(terms_.traffics,
                           [](Traffic traffic) { return traffic != Traffic::kRead; })) {
    return 0;
  }
  Bytes planned = stage(kFiner).most_written + stage(kFinals).most_written;
  for (const Turn& run : coarse()) planned += run.most_written;
  return planned;
}

}  // namespace sluice::bench
