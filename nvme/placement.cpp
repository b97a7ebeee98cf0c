#include "nvme/placement.h"

#include <fmt/format.h>

#include <algorithm>
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
  std::vector<std::size_t> smallest_first(places.size());
  std::iota(smallest_first.begin(), smallest_first.end(), std::size_t{0});
  std::stable_sort(smallest_first.begin(), smallest_first.end(),
                   [&](std::size_t a, std::size_t b) { return room[a] < room[b]; });
  std::vector<Bytes> shares(places.size(), 0);
  Bytes left = round_up(capacity, kAlignment);
  Bytes takers = places.size();
  for (const std::size_t i : smallest_first) {
    shares[i] = std::min({room[i], left, round_up(div_ceil(left, takers), kAlignment)});
    left -= shares[i];
    --takers;
  }
  return shares;
}

std::vector<Part> Extent::slice(Bytes offset, Bytes n) const {
  std::vector<Part> found;
  for (const Part& part : parts) {
    if (n == 0) break;
    if (offset >= part.bytes) {
      offset -= part.bytes;
      continue;
    }
    const Bytes n_here = std::min(n, part.bytes - offset);
    found.push_back({part.path, part.offset + offset, n_here});
    n -= n_here;
    offset = 0;
  }
  return found;
}

Allocator::Allocator(std::vector<std::string> paths, const std::vector<Bytes>& capacities)
    : paths_(std::move(paths)),
      capacity_(capacities),
      used_(capacities.size(), 0),
      last_(capacities.empty() ? 0 : capacities.size() - 1) {}

Extent Allocator::allocate(Bytes n) {
  constexpr Bytes kMost = std::numeric_limits<Bytes>::max() - kAlignment;
  SLUICE_CHECK(
      n <= kMost && round_up(n, kAlignment) <= free(), kBudget,
      fmt::format("nvme: asked {}, {} free of {} on {}; raise the capacity of the store",
                  format_bytes(n), format_bytes(free()),
                  format_bytes(std::accumulate(capacity_.begin(), capacity_.end(), Bytes{0})),
                  fmt::join(paths_, ", ")));
  Extent extent;
  extent.bytes = round_up(n, kAlignment);
  for (Bytes left = extent.bytes; left > 0;) {
    extent.parts.push_back(take(roomiest(), left));
    left -= extent.parts.back().bytes;
  }
  return extent;
}

Bytes Allocator::free() const {
  Bytes total = 0;
  for (std::size_t i = 0; i < used_.size(); ++i) total += capacity_[i] - used_[i];
  return total;
}

std::size_t Allocator::roomiest() {
  const std::size_t n = used_.size();
  std::size_t best = (last_ + 1) % n;
  for (std::size_t step = 2; step <= n; ++step) {
    const std::size_t i = (last_ + step) % n;
    if (capacity_[i] - used_[i] > capacity_[best] - used_[best]) best = i;
  }
  return last_ = best;
}

Part Allocator::take(std::size_t path, Bytes n) {
  const Part part{path, used_[path], std::min(n, capacity_[path] - used_[path])};
  used_[path] += part.bytes;
  return part;
}

}  // namespace sluice::nvme
