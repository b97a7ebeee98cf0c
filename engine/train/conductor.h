/// The handler of every op: turns it into bytes that move or numbers that are computed, by who runs
/// its kind. It decides nothing; what runs when is the scoreboard's business.
///
/// Thread  start(): the lanes' threads
#pragma once

#include <atomic>

#include "engine/checkpoint/safetensors.h"
#include "engine/executor/driver.h"
#include "engine/memory/slot_memory.h"
#include "engine/train/compute.h"
#include "engine/train/host_ops.h"
#include "gpu/stream.h"

namespace sluice::train {

class Conductor : public executor::Handler {
 public:
  /// All must outlive this. `stream` is the one that measured the ops: LibTorch keeps its thread
  /// settings per thread.
  Conductor(const schedule::Setup& setup, const memory::SlotMemory& memory, HostOps& host,
            Compute& compute, gpu::Stream& stream, checkpoint::Writer* writer)
      : setup_(setup),
        memory_(memory),
        host_(host),
        compute_(compute),
        stream_(stream),
        writer_(writer),
        h2d_("h2d"),
        d2h_("d2h") {}

  Ticket start(const executor::OpContext& context) override;

  /// Bytes read from and written to nvme since the start.
  Bytes nvme_read() const { return nvme_read_.load(std::memory_order_relaxed); }
  Bytes nvme_written() const { return nvme_written_.load(std::memory_order_relaxed); }

 private:
  Ticket compute(const executor::OpContext& context, OpBytes op);
  Ticket read(const executor::OpContext& context, const OpBytes& op);
  Ticket write(const executor::OpContext& context, const OpBytes& op);
  void save(const OpBytes& op);

  const schedule::Setup& setup_;
  const memory::SlotMemory& memory_;
  HostOps& host_;
  Compute& compute_;
  gpu::Stream& stream_;         // of compute
  checkpoint::Writer* writer_;  // of the final program's ops; null: there are none
  gpu::Stream h2d_;             // towards the device
  gpu::Stream d2h_;             // back; apart, because the link carries both ways at once
  std::atomic<Bytes> nvme_read_{0};
  std::atomic<Bytes> nvme_written_{0};
};

}  // namespace sluice::train
