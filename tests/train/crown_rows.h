/// The rows of the crown test: where the bytes live, how they get there and who computes, in
/// combinations such that any two values of any two axes meet.
#pragma once

#include <string>
#include <vector>

#include "engine/train/job.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {

/// What fixes the bits of a run.
struct Wiring {
  bool tied;
  DType compute;
  bool accumulates;
  /// When gradients are applied, and what is asked of them before.
  enum class Order : std::uint8_t {
    kGlobal,
    /// Each segment's gradient is clipped by its own norm, and no step is skipped: then updates may
    /// arrive.
    kBySegment,
    kDelayed  ///< from the second step on
  };
  Order order = Order::kGlobal;

  bool by_segment() const { return order == Order::kBySegment; }
  bool delayed() const { return order == Order::kDelayed; }
  /// Each segment by its own norm. Late updates too, such that with and without accumulation and
  /// draining both meet.
  bool clips_segments() const { return by_segment() || (delayed() && tied != accumulates); }
  /// What waits, before each evaluation.
  bool drains() const { return delayed() && compute == DType::kF32; }
  /// In compute's type: where the host has the weights, the final ones are those at home.
  bool saves_weights() const { return compute == DType::kF32 || (compute == DType::kBf16 && tied); }
  /// Bits depend on it. Two cost more than one where each op is tiny, so the shorter runs have
  /// them.
  unsigned compute_threads() const { return accumulates ? 1 : 2; }
  friend bool operator==(const Wiring&, const Wiring&) = default;
};

struct Homes {
  schedule::ParamHome param;
  schedule::GradientHome gradient;
  schedule::OptimizerHome state;
  schedule::ActivationHome activation;

  bool on_nvme() const;
};

/// The driver, and how much memory it has.
enum class Memory : std::uint8_t {
  kSerialPlenty,
  kPlenty,
  kTightGpu,  ///< two layers more than the serial minimum
  kTightCpu,  ///< half of what the plan would like beyond the serial minimum
  kMinimum    ///< exactly the serial minimum, in every tier
};

/// A chunk of the optimizer.
enum class ChunkSize : std::uint8_t { kGrain, kThreeGrains, kAuto };

struct CrownRow {
  Wiring wiring;
  Homes homes;
  Memory memory;
  ChunkSize chunk;
  schedule::Recompute recompute;
  schedule::Sharing sharing;
  unsigned kernel_threads;
  cpu_adam::Stores stores;
  cpu_adam::Isa isa;
  schedule::Update update;
  nvme::Engine engine;  ///< kAuto where nothing is on nvme

  std::string name() const;
  /// Layers may keep their forward.
  bool may_keep() const { return recompute != schedule::Recompute::kEveryLayer; }
  bool unified() const { return sharing == schedule::Sharing::kUnified; }
  bool host_has_weights() const {
    return homes.param == schedule::ParamHome::kCpu ||
           (homes.param == schedule::ParamHome::kNone && unified());
  }
  bool saves_weights_at_home() const { return wiring.saves_weights() && host_has_weights(); }
  /// State on a drive has no upper halves of masters.
  bool splits() const {
    return wiring.compute == DType::kBf16 && host_has_weights() &&
           homes.state == schedule::OptimizerHome::kNvme;
  }
};

/// All of them; where few cases are run (extent.h) those that show a value of an axis for the first
/// time, and of each wiring at least three where reduced, else `least`. Says so where this machine
/// has no io_uring, whose rows then use threads.
std::vector<CrownRow> crown_rows(std::size_t least);
std::vector<CrownRow> crown_rows_of(const Wiring& wiring, std::size_t least);
/// As part of a test's name; no other wiring has it.
std::string name_of(const Wiring& wiring);

/// A small job of this wiring, whose embedding and head are wide enough for the optimizer to fork.
/// Its runs have evaluations.
Job job_of(const TempFolder& folder, const Wiring& wiring);

/// The same as the row wants it, its limits too.
Job job_of(const TempFolder& folder, const CrownRow& row);

/// Of the run's tiers.gpu, exactly: without what a device's libraries take of it, which is not the
/// same in every run.
void limit_gpu(Job& job, Bytes bytes);

/// The step of these runs that is skipped, for an infinite gradient.
inline constexpr std::int64_t kSpoiledStep = 3;
/// What befalls runs of a wiring.
Disturbance disturbance_of(const Wiring& wiring, std::uint64_t delay_seed = 0);

/// A clip threshold that some steps of these numbers reach and others do not.
double clip_threshold(const TempFolder& folder, const Wiring& wiring);

}  // namespace sluice::train
