/// The memory of a run and everything that works on it, put together in the order in which it is
/// needed. A private header of this room.
///
/// Thread  made, used and destroyed on one thread; its parts say what others may do
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cpu_adam/optimizer.h"
#include "engine/base/trace.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/data/sampler.h"
#include "engine/memory/ledger.h"
#include "engine/memory/slot_memory.h"
#include "engine/train/batches.h"
#include "engine/train/conductor.h"
#include "engine/train/host_ops.h"
#include "engine/train/saver.h"
#include "engine/train/session.h"
#include "engine/train/watchdog.h"
#include "nvme/store.h"

namespace sluice::train {

struct Session::Assembly {
  /// Takes all memory of the plan, touches every page of it, and claims the final weights' space.
  explicit Assembly(Session& session);

  /// The workspace is one slot; only who computes in it knows how much of it was in use.
  void note_workspace();
  /// When everything has run.
  std::string memory_report();

  Session& session;
  Rules rules;
  data::Sampler sampler;
  Batches batches;
  cpu_adam::Optimizer optimizer;
  std::optional<nvme::Store> store;
  memory::Ledger ledger;
  memory::SlotMemory memory;
  HostOps host;
  ArithmeticOps arithmetic;
  std::optional<checkpoint::Writer> writer;  ///< where weights are saved
  Saver saver;
  Conductor conductor;
  std::optional<Trace> ring;  ///< only where a profile asks for it
  Trace* trace = nullptr;     ///< where spans go: the hook's, else the ring, else nowhere
  std::unique_ptr<executor::Handler> wrapped;
  std::unique_ptr<executor::Driver> driver;  ///< joins its threads before all else goes
  std::optional<Watchdog> watchdog;
};

}  // namespace sluice::train
