/// One handler per op kind: turns an op of the program into bytes that move or numbers that are
/// computed. It decides nothing; what runs when is the scoreboard's business.
///
/// Thread  start(): the lanes' threads
#pragma once

#include <atomic>

#include "engine/checkpoint/safetensors.h"
#include "engine/executor/driver.h"
#include "engine/memory/slot_memory.h"
#include "engine/train/compute_ops.h"
#include "engine/train/host_ops.h"
#include "gpu/stream.h"

namespace sluice::train {

class Conductor : public executor::Handler {
 public:
  /// All must outlive this. `compute` is the stream that measured the workspace: LibTorch keeps its
  /// thread settings per thread.
  Conductor(const schedule::Setup& setup, const memory::SlotMemory& memory, HostOps& host,
            ComputeOps& compute_ops, gpu::Stream& compute, checkpoint::Writer& writer)
      : setup_(setup),
        memory_(memory),
        host_(host),
        compute_ops_(compute_ops),
        compute_(compute),
        writer_(writer),
        h2d_("h2d"),
        d2h_("d2h") {}

  Ticket start(const executor::OpContext& context) override;

  /// Bytes read from and written to nvme since the start.
  Bytes nvme_read() const { return nvme_read_.load(std::memory_order_relaxed); }
  Bytes nvme_written() const { return nvme_written_.load(std::memory_order_relaxed); }

 private:
  Ticket copy(gpu::Stream& stream, const executor::OpContext& context, const OpBytes& op);
  Ticket read(const executor::OpContext& context, const OpBytes& op);
  Ticket write(const executor::OpContext& context, const OpBytes& op);
  void save(const OpBytes& op);

  const schedule::Setup& setup_;
  const memory::SlotMemory& memory_;
  HostOps& host_;
  ComputeOps& compute_ops_;
  gpu::Stream& compute_;
  checkpoint::Writer& writer_;  // of the final program's ops
  gpu::Stream h2d_;             // towards the device
  gpu::Stream d2h_;             // back; apart, because the link carries both ways at once
  std::atomic<Bytes> nvme_read_{0};
  std::atomic<Bytes> nvme_written_{0};
};

}  // namespace sluice::train
