/// The handler of every op: turns it into bytes that move or numbers that are computed, by who runs
/// its kind. It decides nothing; what runs when is the scoreboard's business.
///
/// Thread  start(): the lanes' threads
#pragma once

#include <atomic>

#include "engine/checkpoint/safetensors.h"
#include "engine/executor/driver.h"
#include "engine/memory/slot_memory.h"
#include "engine/train/arithmetic_ops.h"
#include "engine/train/compute.h"
#include "engine/train/host_ops.h"
#include "engine/train/saver.h"
#include "engine/train/streams.h"
#include "gpu/stream.h"

namespace sluice::train {

class Conductor : public executor::Handler {
 public:
  /// All must outlive this. `nvme_written`: by what the run goes on from. `stream` is the one that
  /// measured the ops: LibTorch keeps its thread settings per thread.
  Conductor(const schedule::Setup& setup, const memory::SlotMemory& memory, HostOps& host,
            const ArithmeticOps& arithmetic, const cpu_adam::Optimizer& optimizer, Compute& compute,
            gpu::Stream& stream, checkpoint::Writer* writer, Saver& saver, Bytes nvme_written)
      : setup_(setup),
        memory_(memory),
        host_(host),
        arithmetic_(arithmetic),
        optimizer_(optimizer),
        device_(optimizer),
        compute_(compute),
        writer_(writer),
        saver_(saver),
        h2d_("h2d"),
        d2h_("d2h"),
        nvme_written_(nvme_written) {
    streams_.add(schedule::lane_of(schedule::LaneKind::kCompute), stream);
  }

  Ticket start(const executor::OpContext& context) override;

  /// Bytes since the start; those written to nvme since the run began.
  struct Moved {
    Bytes h2d = 0, d2h = 0, nvme_read = 0, nvme_written = 0;
  };
  Moved moved() const { return {h2d_bytes_, d2h_bytes_, nvme_read_, nvme_written_}; }

 private:
  Ticket arithmetic(const executor::OpContext& context, OpBytes op);
  /// All of the source, as it is.
  static Ticket copy(gpu::Stream& stream, const OpBytes& op, std::atomic<Bytes>& counted);
  Ticket read(const executor::OpContext& context, const OpBytes& op);
  Ticket write(const executor::OpContext& context, const OpBytes& op);
  void save(const OpBytes& op);

  const schedule::Setup& setup_;
  const memory::SlotMemory& memory_;
  HostOps& host_;
  const ArithmeticOps& arithmetic_;
  const cpu_adam::Optimizer& optimizer_;
  const gpu::Arithmetic device_;
  Compute& compute_;
  Streams streams_;
  checkpoint::Writer* writer_;  // of the final program's ops; null: there are none
  Saver& saver_;
  gpu::Stream h2d_;  // towards the device
  gpu::Stream d2h_;  // back; apart, because the link carries both ways at once
  std::atomic<Bytes> h2d_bytes_{0}, d2h_bytes_{0};
  std::atomic<Bytes> nvme_read_{0};
  std::atomic<Bytes> nvme_written_;
};

}  // namespace sluice::train
