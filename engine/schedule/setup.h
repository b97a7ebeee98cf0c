/// Everything the schedule needs to know of a run: the model cut into pieces, the homes, the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/schedule/options.h"
#include "engine/shape/model.h"
#include "engine/zero/chunk.h"
#include "engine/zero/layout.h"

namespace sluice::schedule {

enum class GradDType : std::uint8_t {
  kAuto,  ///< one contribution: the compute dtype; several: fp32 sums
  kF32    ///< always fp32 sums
};

/// Does the device share its memory with the host? Then copies between the gpu and cpu tiers are
/// elided.
enum class Sharing : std::uint8_t { kSeparate, kUnified };

struct Setup {
  /// Shared: planning tries many setups of one model.
  std::shared_ptr<const shape::Model> model = std::make_shared<const shape::Model>();
  std::vector<zero::Layout> layouts;             ///< by segment
  std::vector<std::vector<zero::Chunk>> chunks;  ///< by segment
  std::vector<int> uses;                         ///< by segment: how many blocks name it
  Options homes;  ///< of make_setup: nothing is auto any more but sub_group_size
  Sharing sharing = Sharing::kSeparate;
  DType compute = DType::kF32;
  GradDType grad_dtype = GradDType::kAuto;
  std::int64_t micro_batch_size = 1;  ///< sequences
  std::int64_t seq_len = 1;           ///< tokens
  std::int64_t micro_batches = 1;     ///< per step
  bool documents = false;             ///< a row of a batch may hold several
  /// So many micro-batches go through the blocks together: streamed weights are fetched once for
  /// all of them, and the last of them makes gradients whole. 1 is horizontal order, all is
  /// vertical order; the bits are the same. Before the plan: so many at most.
  std::int64_t sweep = 1;
  Update update = Update::kEnd;
  bool may_arrive = false;    ///< nothing that is asked of the gradients needs all of them at once
  bool picks_update = false;  ///< before the plan: it may take another one that is allowed
  bool clips_segments = false;   ///< each by a norm of its own, not all by one
  bool begins_pending = false;   ///< with a gradient whose update is still to come
  std::int64_t kept_layers = 0;  ///< so many, from the last, keep their forward for backward
  bool keeps_logits = false;     ///< the head does not make them again for its second pass
  bool saves_weights = false;    ///< those of a run's end are in compute's type, as weights are
  Bytes logits = 0;              ///< of a micro-batch; 0: no second pass, or too large
  Bytes workspace = 0;           ///< of the compute lane

  std::uint64_t chunk_count() const;
  std::int64_t micro_batch_tokens() const { return micro_batch_size * seq_len; }
  std::int64_t tokens_per_step() const { return micro_batch_tokens() * micro_batches; }
  /// Operations that the model needs for a step: a forward and a backward of each token, whatever
  /// is run again.
  double step_flops() const;
  std::uint64_t segment_elems(int segment) const {
    return layouts[static_cast<std::size_t>(segment)].elems;
  }
  /// Weights are fetched into a device slot for each use.
  bool streams_params() const {
    return homes.offload_param == ParamHome::kNvme ||
           (homes.offload_param == ParamHome::kCpu && sharing == Sharing::kSeparate);
  }
  /// Block inputs leave the device between forward and backward, through host memory, to stay there
  /// or on the way to nvme.
  bool saves_activations_on_host() const {
    return homes.offload_activation != ActivationHome::kNone && sharing == Sharing::kSeparate;
  }
  /// The optimizer works on the device, where its state lies.
  bool updates_on_device() const { return homes.offload_optimizer == OptimizerHome::kNone; }
  /// Weights at home are in memory that the host reaches.
  bool host_has_weights() const {
    return homes.offload_param == ParamHome::kCpu ||
           (homes.offload_param == ParamHome::kNone && sharing == Sharing::kUnified);
  }
  /// State on nvme is without the masters' upper halves, which follow from bf16 weights that the
  /// host has. Whoever needs masters whole joins the two.
  bool splits_masters() const {
    return compute == DType::kBf16 && host_has_weights() &&
           homes.offload_optimizer == OptimizerHome::kNvme;
  }
  Bytes state_bytes_per_elem() const {
    return splits_masters() ? zero::kSplitStateBytesPerElem : zero::kStateBytesPerElem;
  }
  /// Each segment has a record of its own, made of its own norms.
  bool decides_by_segment() const { return clips_segments || update == Update::kArriving; }
  /// A step leaves its gradient to the next.
  bool delays() const { return update == Update::kDelayed; }
  bool uses_nvme() const {
    return homes.offload_param == ParamHome::kNvme ||
           homes.offload_optimizer == OptimizerHome::kNvme ||
           homes.offload_activation == ActivationHome::kNvme;
  }
  /// A layer whose weights are there anyway can keep its forward instead of running it again.
  bool may_keep() const { return homes.recompute != Recompute::kEveryLayer && !streams_params(); }
  /// The head's weights are there in any case, so it may also where layers may not.
  bool may_keep_logits() const { return homes.recompute != Recompute::kEveryLayer && logits > 0; }
  /// The block is one of the kept layers. The last block is the head.
  bool keeps(int block) const {
    const auto blocks = static_cast<std::int64_t>(model->blocks.size());
    return block < blocks - 1 && block >= blocks - 1 - kept_layers;
  }
};

/// More chunks, or more forward ops, than this in one step make programs that take seconds to write
/// and gigabytes to hold. An evaluation may have less: it is a program beside the step's.
inline constexpr std::uint64_t kMaxChunks = 1 << 17;
inline constexpr std::uint64_t kMaxForwards = 1 << 18;
inline constexpr std::uint64_t kMaxEvaluationForwards = 1 << 16;

/// Cuts the model and fills in what follows from it. `sub_group_size` is taken from the homes.
/// Throws kBudget when that makes more than kMaxChunks chunks.
Setup make_setup(shape::Model model, const Options& homes);

/// The same with the optimizer's chunks cut anew.
Setup with_chunks(Setup setup, std::optional<Bytes> sub_group_size);

}  // namespace sluice::schedule
