/// What this machine does per second, and the cost model that follows from it.
///
/// Rates choose sizes, never bits: a wrong one costs time.
#pragma once

#include <map>

#include "engine/schedule/ops.h"
#include "prefetch/cost_model.h"

namespace sluice::plan {

/// Bytes per second of transfers.
struct Throughput {
  double alone = 0;     ///< one at a time
  double together = 0;  ///< many at a time, all of them; 0: as one
};

struct Rates {
  double copy = 8e9;  ///< bytes per second, device to host and back; each way does one at a time
  double copy_overlap = 2;  ///< of both ways at once: as nvme_overlap
  Throughput nvme_read;     ///< 0: not measured, costs nothing
  Throughput nvme_write;
  double nvme_overlap = 1;    ///< of reads and writes at once: see nvme::Speed
  double nvme_in_flight = 0;  ///< bytes of one direction that drives have at a time
  double adam = 8e9;          ///< bytes per second, as ops count them, where the optimizer works
  schedule::LaneKind updates = schedule::LaneKind::kCpu;  ///< there
  double first_values = 8e9;  ///< the same of `init state`, which is the host's
  double sums = 8e9;          ///< of sums of gradients on the host
  double device_sums = 8e9;   ///< likewise on the compute lane
  double norms = 8e9;         ///< of gradients, where they lie
  schedule::LaneKind gradients = schedule::LaneKind::kCpu;  ///< there
  double flops = 1e11;                               ///< of compute ops that are not in `compute`
  std::map<schedule::OpId, prefetch::Rate> compute;  ///< by op, as measured
  std::map<schedule::OpId, double> traffic;  ///< bytes per second of host memory that they take
  double dram = 0;      ///< that host memory gives; 0: not measured, nobody waits for it
  double checks = 0;    ///< per core, of what comes from a drive or goes
                        ///< there; 0: it is not checked
  double op_s = 30e-6;  ///< of every op: threads that are woken

  // Shares of the host's cores that one op uses; 0 where the device does the work.
  double compute_cores = 0;
  double cpu_cores = 0;
  double cpu_weight = 1;  ///< of these, once what computes the model has 1: see prefetch::OpCost
  double copy_cores = 0;
  double copy_ends = 1;  ///< of a copy, that are in host memory
  double check_cores = 0;
  /// What cores that compute the model give to ops of several lanes, of what they give to one's:
  /// the threads of an op wait for each other, so all of them for one that had to share its core.
  /// As they stand where a layer beside an update was not looked at, or was disturbed.
  double shared_cores = 0.85;
};

/// Copies of one direction take turns, reads and writes share the drives, what the host computes or
/// copies its cores, and all of them what its memory gives.
prefetch::CostModel cost_model(const Rates& rates, const prefetch::Lanes& lanes);

}  // namespace sluice::plan
