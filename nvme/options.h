/// How bytes get to the drives and back.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "engine/base/units.h"

namespace sluice::nvme {

enum class Engine : std::uint8_t {
  kAuto,     ///< the best that the kernel allows; said aloud
  kIoUring,  ///< error where it is not allowed
  kLibaio,   ///< the kernel's older interface; useful under O_DIRECT only
  kThreads   ///< pread and pwrite on a pool of threads
};

/// As a run file spells them.
constexpr const char* name_of(Engine engine) {
  switch (engine) {
    case Engine::kAuto:
      return "auto";
    case Engine::kIoUring:
      return "io_uring";
    case Engine::kLibaio:
      return "libaio";
    case Engine::kThreads:
      return "threads";
  }
  return "";
}

enum class Direct : std::uint8_t {
  kAuto,  ///< O_DIRECT where a real write, read and compare works; said aloud where not
  kTrue,  ///< error where it does not work
  kFalse  ///< through the page cache
};

enum class Verify : std::uint8_t {
  kAuto,  ///< where the processors have time for it: the run decides; a store by itself does not
  kTrue,  ///< every byte that was written through the store is checked when it is read
  kFalse
};

inline constexpr Bytes kMaxBlockSize = 1_GiB;
inline constexpr unsigned kMaxQueueDepth = 4096;
inline constexpr unsigned kMaxThreads = 1024;
/// Enough to fill one drive at 1 MiB a request, few enough to be idle cheaply.
inline constexpr unsigned kAutoThreads = 8;

struct Options {
  Engine engine = Engine::kAuto;
  Direct direct = Direct::kAuto;
  Bytes block_size = 1_MiB;  ///< request size; a multiple of kAlignment
  /// Reads in flight on a drive, and as many writes. Enough to fill it until a thread that waits
  /// for a core gives it more: what is asked for later waits until all of them are done.
  unsigned queue_depth = 16;
  std::optional<unsigned> threads;  ///< of the thread queue, as many for writes; nullopt = auto
  Verify verify = Verify::kAuto;
  /// A transfer that takes longer ends the run. The kernel's own drivers give a drive half a minute
  /// and then reset it, which takes as long again.
  std::chrono::milliseconds timeout{120'000};
};

/// Of the thread queue, those that read; as many write.
constexpr unsigned threads_each_way(const Options& options) {
  return std::min(options.threads.value_or(kAutoThreads), options.queue_depth);
}

/// Bytes of one direction that one drive has at a time.
constexpr Bytes in_flight(const Options& options) {
  const bool threads = options.engine == Engine::kThreads;
  return options.block_size * (threads ? threads_each_way(options) : options.queue_depth);
}

}  // namespace sluice::nvme
