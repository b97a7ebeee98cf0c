/// What is measured of a drive, and what came out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/units.h"
#include "nvme/options.h"

namespace sluice::bench {

enum class Traffic : std::uint8_t {
  kRead,
  kWrite,
  kMixed  ///< as the optimizer does it: the next chunk is read while the previous one is written
};
const char* name_of(Traffic traffic);

/// One way to use a drive.
struct Point {
  nvme::Engine engine = nvme::Engine::kIoUring;  ///< never kAuto
  Bytes block = 1_MiB;
  unsigned depth = 32;  ///< in flight each way
  Traffic traffic = Traffic::kRead;
  Bytes in_flight() const { return block * depth; }  ///< each way
  bool operator==(const Point&) const = default;
};

/// Of the engine of that name: the depth is what is measured.
unsigned threads_of(const Point& point);

/// How many requests of `request` bytes keep the depth of a point full. They end one after the
/// other: when one does, half of what the others brought is left.
std::size_t requests_at_a_time(const Point& point, Bytes request);

/// Of single transfers of a block, from the kernel's taking it to its answer. 0 where none was
/// made.
struct Latency {
  double p50_s = 0, p99_s = 0, p999_s = 0;
};

/// One run of a point. Rates are bytes per second of wall time, in each direction.
struct Measured {
  Point point;
  int repetition = 0;
  double seconds = 0;
  Bytes read_bytes = 0, written_bytes = 0;
  double read_rate = 0, write_rate = 0;
  Latency read_latency, write_latency;
  double cpu_s_per_gb = 0;   ///< seconds of processors, user and system, per 10^9 bytes moved
  Bytes verified_bytes = 0;  ///< of what was read, compared with what had been written there
  double rate() const { return read_rate + write_rate; }
};

/// All runs of one point together.
struct Summary {
  Point point;
  int repetitions = 0;
  double read_rate = 0, write_rate = 0;  ///< medians
  double spread = 0;                     ///< (fastest - slowest) / median of rate()
  double drift = 0;                      ///< last / first of rate(), less 1
  Latency read_latency, write_latency;   ///< medians
  double cpu_s_per_gb = 0;               ///< median
  double rate() const { return read_rate + write_rate; }
};

struct MachineContext {
  std::string date;  ///< ISO 8601, UTC
  std::string cpu;
  unsigned cores = 0;
  std::string kernel;
};

/// What the figures depend on. The preamble prints it, and the JSON's context has it.
struct Context : MachineContext {
  std::string path, filesystem, device;  ///< device: name and model, as far as they can be read
  Bytes free = 0;
  std::string wear;           ///< what the drive says of it; empty: nothing
  double endurance_left = 0;  ///< bytes that may still be written, by that; 0: not known
  std::string engines;        ///< usable ones, and why the others are not
  std::string direct;         ///< O_DIRECT and its alignment, or why not
  std::string memlock;        ///< the limit, and whether buffers could be registered
  Bytes planned_writes = 0;
};

}  // namespace sluice::bench
