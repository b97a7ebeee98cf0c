/// Files whose bytes lie at any offset, as formats of other programs lay them out, moved by a queue
/// that may want whole blocks: around the page cache, where that works.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ticket.h"
#include "engine/base/units.h"
#include "nvme/file.h"
#include "nvme/io_queue.h"
#include "nvme/options.h"

namespace sluice::nvme {

/// Bytes of a file, and where they lie in memory: in `room` as in the file's blocks.
struct Range {
  std::size_t file = 0;
  Bytes offset = 0, bytes = 0;
  std::byte* room = nullptr;  ///< on kAlignment, room_for(offset, bytes) long

  std::span<std::byte> data() const { return {room + offset % kAlignment, bytes}; }
};

/// What the blocks take that hold these bytes.
constexpr Bytes room_for(Bytes offset, Bytes bytes) {
  return round_up(offset + bytes, kAlignment) - round_down(offset, kAlignment);
}

/// Owns    the files, and from the first transfer on a queue of its own; the destructor waits for
///         what is in flight
/// Thread  any, several at once
/// Throws  kIo, from the ticket too; kFormat beyond the end of a file; what make_queue() throws;
///         kWatchdog from the ticket
class UnalignedFiles {
 public:
  /// Existing files. Whether O_DIRECT works is tried, by a read of each; where it does not for one,
  /// all go through the page cache, also when `options.direct` is kTrue, which is about the tier.
  UnalignedFiles(const std::vector<std::string>& paths, Access access, const Options& options);

  /// Reads the blocks that the ranges are in: all of `room` is written to. Both must live until the
  /// ticket is done.
  Ticket read(std::span<const Range> ranges) const;

  /// Writes the range and nothing beside it: whole blocks by the queue, its two ends, whose blocks
  /// others share, through the page cache before this returns. Durable when the file is synced.
  Ticket write(const Range& range) const;

 private:
  struct Paired {
    File queued;
    std::optional<File> beside;  // of the same path, where `queued` goes around the page cache

    const File& cached() const { return beside ? *beside : queued; }
  };
  IoQueue& queue() const;

  Options options_;
  std::vector<Paired> files_;
  mutable std::once_flag made_;
  mutable std::unique_ptr<IoQueue> queue_;  // last, so that it drains before the files close
};

}  // namespace sluice::nvme
