/// The same job under fio, the tool that people trust: what the drive gives when nothing of sluice
/// is in the way.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/units.h"
#include "engine/bench/point.h"

namespace sluice::bench {

enum class FioBuffers : std::uint8_t {
  kRegistered,  ///< pinned once, as ours are; io_uring alone knows them
  kOrdinary     ///< where `ulimit -l` is too low for that
};

struct FioJob {
  Point point;
  FioBuffers buffers = FioBuffers::kRegistered;
  double seconds = 5;
  double ramp_s = 1;   ///< before them, not counted
  Bytes size = 1_GiB;  ///< of its files together, which it writes first
  /// Writes new files instead, once, and syncs them: all of that is the time but for claiming their
  /// space. A filesystem has more to do there than over files that were written before.
  bool into_new_files = false;
};

/// What follows the word fio. Its files have no folder: it runs in the one they shall lie in.
///
/// io_uring gets registered files and, unless asked otherwise, buffers; threads are jobs that pread
/// or pwrite, as many as our pool has. Mixed are two jobs, one that reads and one that writes.
///
/// Throws  kConfig when the size is less than one block for each job
std::vector<std::string> fio_arguments(const FioJob& job);

/// From what fio prints with --output-format=json. Latencies are those of completion (clat).
///
/// Throws  kFormat when it is not that; kIo when fio says that a job failed
Measured measured_by_fio(std::string_view output, const Point& point);

/// Throws kEnv when fio is not installed.
void require_fio();

/// Runs it in a new folder in `folder`, which it removes. Buffers that cannot be registered are
/// said aloud, and it runs without. nullopt: a signal in `stop` ended it.
///
/// Throws  kEnv when fio is not installed; kIo, with what fio said, when it fails; kFormat
std::optional<Measured> run_fio(const FioJob& job, const std::string& folder,
                                const std::atomic<int>& stop);

}  // namespace sluice::bench
