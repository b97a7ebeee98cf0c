/// How fast drives are: a short look, by writing and reading a file without a name on each path.
///
/// Thread  any
/// Throws  kIo and kBudget when a path cannot be written or has no room; kEnv as make_queue()
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nvme/options.h"

namespace sluice::nvme {

/// Bytes per second of one direction.
struct Rate {
  /// One request of kLookedAt bytes at a time: the median of a few, and no more than `together`.
  double alone = 0;
  double together = 0;  ///< several at a time, once that goes on; 0: too slow to be asked
};
struct Speed {
  Rate read, write;
  /// What both directions move at once, as many bytes each, as parts of what each moves alone,
  /// added up: 2 where they do not touch and are as fast, 1 where one takes its time from the
  /// other, less where that costs time of its own, or something goes on beside them. Not below a
  /// quarter: that was disturbed.
  double overlap = 1;
  /// How far the two halves of the time that it was looked at lie apart, of reads, of writes, or of
  /// both at once, whichever is more; 0: that was too short to tell.
  double spread = 0;
  /// Beside other drives, where as much is read as is written.
  double both() const;
};

inline constexpr Bytes kLookedAt = 4_MiB;

/// Of each path by itself; each drive takes one to six seconds, up to three times that where it
/// does not hold still, a tenth of it where next to nothing will be there. The file is as large as
/// what the run will have there, `stored`, from 32 MiB to 1 GiB and to what a second can write:
/// caches of drives that are larger than this, or than what a second and a half fills, are not got
/// past. Takes as much memory, up to 128 MiB. Paths of one filesystem are one drive: it is looked
/// at once, and each of them has an equal part of its speed. A folder that is not there yet is
/// looked at in its nearest parent.
///
/// `beside`: what the host does in a run while drives are busy, done over and over on a thread of
/// its own while both directions are asked at once, and done for when this returns; it may not
/// throw. It takes cores and memory from a drive: from a virtual one, which copies, most.
std::vector<Speed> look_at(const std::vector<std::string>& paths, const Options& options,
                           Bytes stored = 0, const std::function<void()>& beside = {});

/// Bytes per second: in all of the time that was looked at, in its first half
/// of requests, and in the other.
struct Moved {
  double whole = 0, first = 0, second = 0;

  double spread() const;
};
inline constexpr double kSteady = 0.2;  ///< halves that lie further apart are not
inline constexpr int kLooks = 3;

/// Looks once, and again until the halves agree, up to kLooks times in all; of these the one whose
/// halves agree best.
Moved steadiest(const std::function<Moved()>& look);

/// Speed::overlap of a drive that moves so many bytes per second there and back at once, half of
/// them each way.
double overlap_of(double moved, const Speed& alone);

/// Of one drive that stands for all of them, striped by both().
Speed together(const std::vector<Speed>& speeds);

}  // namespace sluice::nvme
