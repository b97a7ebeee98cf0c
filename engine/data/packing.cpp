#include "engine/data/packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace sluice::data {
namespace {

std::vector<std::uint32_t> longest_first(std::span<const Piece> pieces) {
  std::vector<std::uint32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::uint32_t i) { return pieces[i].places; });
  return order;
}

/// Samples that are not full, by the room that is left in them.
class Rooms {
 public:
  explicit Rooms(std::int64_t seq_len) : seq_len_(seq_len) {}

  /// The sample that a piece goes to.
  std::uint32_t take(std::int64_t places) {
    std::uint32_t sample = samples_;
    std::int64_t room = seq_len_;
    if (const auto at = by_room_.lower_bound(places); at != by_room_.end()) {
      room = at->first;
      sample = *at->second.begin();
      at->second.erase(at->second.begin());
      if (at->second.empty()) by_room_.erase(at);
    } else {
      ++samples_;
    }
    if (room > places) by_room_[room - places].insert(sample);
    return sample;
  }

  std::uint32_t samples() const { return samples_; }

 private:
  std::int64_t seq_len_;
  std::uint32_t samples_ = 0;
  std::map<std::int64_t, std::set<std::uint32_t>> by_room_;
};

}  // namespace

Packing pack(std::span<const Piece> pieces, std::int64_t seq_len) {
  Rooms rooms(seq_len);
  std::vector<std::uint32_t> sample_of(pieces.size());
  for (const std::uint32_t i : longest_first(pieces)) sample_of[i] = rooms.take(pieces[i].places);

  // Samples are numbered by their first pieces; then it is a counting sort.
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> number(rooms.samples(), kNone);
  std::uint32_t next = 0;
  for (std::uint32_t& sample : sample_of) {
    if (number[sample] == kNone) number[sample] = next++;
    sample = number[sample];
  }
  Packing packing{std::vector<std::uint32_t>(pieces.size()),
                  std::vector<std::uint64_t>(rooms.samples() + 1)};
  for (const std::uint32_t sample : sample_of) ++packing.begins[sample + 1];
  std::partial_sum(packing.begins.begin(), packing.begins.end(), packing.begins.begin());
  std::vector<std::uint64_t> at = packing.begins;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    packing.order[at[sample_of[i]]++] = static_cast<std::uint32_t>(i);
  }
  return packing;
}

Packing one_each(std::span<const Piece> pieces) {
  Packing packing{std::vector<std::uint32_t>(pieces.size()),
                  std::vector<std::uint64_t>(pieces.size() + 1)};
  std::iota(packing.order.begin(), packing.order.end(), 0U);
  std::iota(packing.begins.begin(), packing.begins.end(), 0U);
  return packing;
}

}  // namespace sluice::data
