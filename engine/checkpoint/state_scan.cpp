#include "engine/checkpoint/state_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/base/ticket.h"
#include "engine/base/units.h"
#include "engine/zero/options.h"
#include "nvme/aligned.h"

namespace sluice::checkpoint {
namespace {

// A piece is large enough for a drive and small enough for a cache or two to share; one is looked
// at while the others come.
constexpr std::uint64_t kPieceElems = 128 * kGrainElems;
constexpr std::size_t kReadAhead = 6;

struct Piece {
  RecordKind kind = RecordKind::kState;
  DType dtype = DType::kF32;
  int segment = 0;
  std::uint64_t first_elem = 0, elems = 0;
};

/// Cuts the segments into pieces, however their records are cut: first of state, then of gradients.
class Cutter {
 public:
  explicit Cutter(const StateReader& reader)
      : reader_(reader), segments_(reader.manifest().segments) {}

  std::optional<Piece> next() {
    while (segment_ < segments_.size() && at_ == segments_[segment_].elems) {
      ++segment_;
      at_ = 0;
      if (segment_ == segments_.size() && kind_ == RecordKind::kState && reader_.has_gradients()) {
        kind_ = RecordKind::kGradient;
        segment_ = 0;
      }
    }
    if (segment_ == segments_.size()) return std::nullopt;
    const int segment = static_cast<int>(segment_);
    const DType dtype = kind_ == RecordKind::kState ? DType::kF32 : reader_.gradient_dtype(segment);
    const std::uint64_t elems = std::min(kPieceElems, segments_[segment_].elems - at_);
    const Piece piece{kind_, dtype, segment, at_, elems};
    at_ += elems;
    return piece;
  }

 private:
  const StateReader& reader_;
  const std::vector<SegmentPlace>& segments_;
  RecordKind kind_ = RecordKind::kState;
  std::size_t segment_ = 0;
  std::uint64_t at_ = 0;
};

/// Pieces on their way from the drive, in order.
class Ring {
 public:
  explicit Ring(const StateReader& reader) : reader_(reader), pieces_(reader) {
    // Whole before the first read: what unwinds from here would free room that a drive writes to.
    for (Slot& slot : slots_) {
      slot.room = nvme::allocate_aligned(kPieceElems * zero::kStateBytesPerElem);
    }
    for (Slot& slot : slots_) fill(slot);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  /// The drive writes into the slots until then.
  ~Ring() {
    for (const Slot& slot : slots_) slot.read.wait_error();
  }

  struct Slot {
    nvme::AlignedBytes room;
    std::optional<Piece> piece;
    Ticket read;

    std::span<std::byte> bytes() const {
      return {room.get(), piece->elems * parts_of(piece->kind).size() * size_of(piece->dtype)};
    }
    /// Of a piece of state.
    std::span<float> state() const {
      return {reinterpret_cast<float*>(room.get()), piece->elems * kStateParts.size()};
    }
  };
  /// The oldest; it has no piece at the end.
  Slot& front() { return slots_[front_]; }
  /// Done with that one: it takes what comes next.
  void pop() {
    fill(slots_[front_]);
    front_ = (front_ + 1) % kReadAhead;
  }

 private:
  void fill(Slot& slot) {
    slot.piece = pieces_.next();
    if (!slot.piece) return;
    try {
      const Piece& p = *slot.piece;
      slot.read = p.kind == RecordKind::kState
                      ? reader_.read(p.segment, p.first_elem, slot.state())
                      : reader_.read_gradient(p.segment, p.first_elem, slot.bytes());
    } catch (const std::exception&) {
      TicketSource failed;  // its turn has not come yet, and others are on their way
      slot.read = failed.ticket();
      failed.fail(std::current_exception());
    }
  }

  const StateReader& reader_;
  Cutter pieces_;
  std::array<Slot, kReadAhead> slots_;
  std::size_t front_ = 0;
};

/// False: it cannot be read, which has been said.
bool arrived(const StateReader& reader, const Ring::Slot& slot, const Looks& looks) {
  try {
    slot.read.wait();
    return true;
  } catch (const Error& e) {
    if (e.code == Errc::kWatchdog) throw;
    const Errc code = e.code == Errc::kFormat ? Errc::kCheckpoint : e.code;
    const Piece& p = *slot.piece;
    for (const auto& part : reader.pieces(p.kind, p.segment, p.first_elem, p.elems)) {
      const Record& record = reader.manifest().of(p.kind)[part.record];
      looks.damaged(
          Error(code, fmt::format("{} cannot be read: {}", reader.describe(record), e.what())));
    }
    return false;
  }
}

/// Records that are whole with this piece, and not what was written.
std::vector<std::size_t> compare(RecordSums& sums, const Each& each, const Ring::Slot& slot) {
  std::mutex mutex;
  std::vector<std::size_t> damaged;
  each(slot.piece->elems, [&](std::size_t begin, std::size_t end) {
    const Piece& p = *slot.piece;
    const auto more = sums.compare(p.kind, p.segment, p.first_elem, slot.bytes(), begin, end);
    const std::lock_guard lock(mutex);
    damaged.insert(damaged.end(), more.begin(), more.end());
  });
  std::ranges::sort(damaged);
  return damaged;
}

}  // namespace

void scan_state(const StateReader& reader, const Each& each, const Looks& looks) {
  RecordSums sums(reader);
  for (Ring ring(reader); ring.front().piece; ring.pop()) {
    const Ring::Slot& slot = ring.front();
    if (!arrived(reader, slot, looks)) continue;
    const Piece& piece = *slot.piece;
    for (const std::size_t record : compare(sums, each, slot)) {
      looks.damaged(Error(Errc::kCheckpoint, sums.damage(piece.kind, record)));
    }
    if (piece.kind != RecordKind::kState) continue;
    looks.see({piece.segment, piece.first_elem, slot.state().first(piece.elems)});
  }
}

}  // namespace sluice::checkpoint
