#include "nvme/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/base/error.h"

namespace sluice::nvme {
namespace {

// Folders of one device get equal parts of what is free there.
std::vector<Bytes> room_of(const std::vector<Place>& places) {
  std::vector<Bytes> room;
  for (const Place& place : places) {
    const auto sharers =
        static_cast<Bytes>(std::count_if(places.begin(), places.end(), [&](const Place& other) {
          return other.device == place.device;
        }));
    const Bytes part = place.free / sharers;
    room.push_back(part - part % kAlignment);
  }
  return room;
}

std::string list_of(const std::vector<Place>& places, const std::vector<Bytes>& room) {
  std::string text;
  for (std::size_t i = 0; i < places.size(); ++i) {
    text += fmt::format("{}{} has {}", i == 0 ? "" : ", ", places[i].path, format_bytes(room[i]));
  }
  return text;
}

}  // namespace

std::vector<Bytes> share_capacity(const std::vector<Place>& places, Bytes capacity) {
  const std::vector<Bytes> room = room_of(places);
  const Bytes total = std::accumulate(room.begin(), room.end(), Bytes{0});
  SLUICE_CHECK(capacity <= total, kBudget,
               fmt::format("nvme: needs {}, {} free ({}); free some space, add a folder on another "
                           "drive to tiers.nvme.paths, or offload less to nvme",
                           format_bytes(capacity), format_bytes(total), list_of(places, room)));
  // Who fills up first comes first, so that the others know what is left for them.
  std::vector<std::size_t> order(places.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto seconds_to_fill = [&](std::size_t i) {
    return static_cast<double>(room[i]) / places[i].speed;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return seconds_to_fill(a) < seconds_to_fill(b);
  });
  double speed = 0;
  for (const Place& place : places) speed += place.speed;
  std::vector<Bytes> shares(places.size(), 0);
  Bytes left = round_up(capacity, kAlignment);
  for (const std::size_t i : order) {
    const bool last = i == order.back();
    const auto fair = static_cast<Bytes>(static_cast<double>(left) * places[i].speed / speed);
    shares[i] = std::min({room[i], left, last ? left : round_up(fair, kAlignment)});
    left -= shares[i];
    speed -= places[i].speed;
  }
  return shares;
}

namespace {

constexpr std::size_t kMostTurns = 64;  // in a round: shares are met to this fraction
constexpr Bytes kLeastRounds = 8;

/// How many turns of a round each path gets: as its share is to all, none for an empty one.
std::vector<Bytes> turns_of(const std::vector<Bytes>& shares) {
  const Bytes total = std::accumulate(shares.begin(), shares.end(), Bytes{0});
  Bytes least = total;
  for (const Bytes share : shares) {
    if (share > 0) least = std::min(least, share);
  }
  // Equal shares need one turn each, a third beside the rest three: no more than it takes.
  const auto wanted = std::min<Bytes>(kMostTurns, div_ceil(total, std::max<Bytes>(least, 1)));
  std::vector<Bytes> best;
  double best_error = std::numeric_limits<double>::infinity();
  for (std::size_t turns = wanted; turns <= kMostTurns; ++turns) {
    std::vector<Bytes> counts;
    double error = 0;
    for (const Bytes share : shares) {
      const double exact =
          static_cast<double>(share) * static_cast<double>(turns) / static_cast<double>(total);
      const auto count =
          share == 0 ? Bytes{0} : std::max<Bytes>(1, static_cast<Bytes>(std::llround(exact)));
      counts.push_back(count);
      error = std::max(error,
                       std::abs(static_cast<double>(count) - exact) / static_cast<double>(turns));
    }
    if (error < best_error - 1e-3) {
      best = counts;
      best_error = error;
    }
  }
  return best;
}

/// The paths in turn, each as often as it is counted, spread as evenly as they can be.
std::vector<std::size_t> interleave(const std::vector<Bytes>& counts) {
  std::vector<std::pair<double, std::size_t>> turns;  // when, of a round that takes 1
  for (std::size_t path = 0; path < counts.size(); ++path) {
    for (std::size_t i = 0; i < counts[path]; ++i) {
      turns.emplace_back((static_cast<double>(i) + 0.5) / static_cast<double>(counts[path]), path);
    }
  }
  std::sort(turns.begin(), turns.end());
  std::vector<std::size_t> order;
  for (const auto& [when, path] : turns) order.push_back(path);
  return order;
}

/// Whole rounds that fit into what is left of every path; `counts`: of each, in units.
Bytes rounds_in(const std::vector<Bytes>& left, const std::vector<Bytes>& counts, Bytes unit) {
  Bytes rounds = std::numeric_limits<Bytes>::max();
  for (std::size_t path = 0; path < left.size(); ++path) {
    if (counts[path] > 0) rounds = std::min(rounds, left[path] / (counts[path] * unit));
  }
  return rounds;
}

}  // namespace

Stripes::Stripes(const std::vector<Bytes>& shares, Bytes unit) {
  std::vector<Bytes> left = shares;
  std::vector<Bytes> used(shares.size(), 0);
  const auto busy = [&] {
    return std::count_if(left.begin(), left.end(), [](Bytes bytes) { return bytes > 0; });
  };
  // Where the shares are no whole rounds, the rest is laid in rounds of its own, down to the last
  // bytes, which lie path by path.
  while (busy() > 1) {
    const std::vector<Bytes> counts = turns_of(left);
    while (unit > kAlignment && rounds_in(left, counts, unit) < kLeastRounds) unit /= 2;
    if (rounds_in(left, counts, unit) == 0) break;
    lay(left, used, interleave(counts), unit);
  }
  for (std::size_t path = 0; path < left.size(); ++path) {
    if (left[path] > 0) lay(left, used, {path}, left[path]);
  }
}

/// As many whole rounds as fit.
void Stripes::lay(std::vector<Bytes>& left, std::vector<Bytes>& used,
                  std::vector<std::size_t> turns, Bytes unit) {
  Zone zone{bytes_, 0, unit, std::move(turns), used, std::vector<Bytes>(left.size(), 0), {}};
  for (const std::size_t path : zone.turns) {
    zone.before.push_back(zone.per_round[path]);
    zone.per_round[path] += unit;
  }
  const Bytes rounds = rounds_in(left, zone.per_round, 1);
  zone.bytes = rounds * zone.turns.size() * unit;
  for (std::size_t path = 0; path < left.size(); ++path) {
    left[path] -= rounds * zone.per_round[path];
    used[path] += rounds * zone.per_round[path];
  }
  bytes_ += zone.bytes;
  zones_.push_back(std::move(zone));
}

std::vector<Part> Stripes::slice(Bytes begin, Bytes n) const {
  std::vector<Part> parts;
  auto zone = std::upper_bound(zones_.begin(), zones_.end(), begin,
                               [](Bytes at, const Zone& z) { return at < z.begin + z.bytes; });
  while (n > 0) {
    const Bytes at = begin - zone->begin;
    const Bytes turn = at / zone->unit;
    const auto nth = static_cast<std::size_t>(turn % zone->turns.size());
    const std::size_t path = zone->turns[nth];
    const Bytes within = at % zone->unit;
    const Bytes offset = zone->at[path] + turn / zone->turns.size() * zone->per_round[path] +
                         zone->before[nth] + within;
    const Bytes here = std::min(n, zone->unit - within);
    if (!parts.empty() && parts.back().path == path &&
        parts.back().offset + parts.back().bytes == offset) {
      parts.back().bytes += here;
    } else {
      parts.push_back({path, offset, here});
    }
    begin += here;
    n -= here;
    if (begin == zone->begin + zone->bytes) ++zone;
  }
  return parts;
}

}  // namespace sluice::nvme
