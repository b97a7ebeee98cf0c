#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/base/machine.h"
#include "engine/compute/model_ops.h"
#include "engine/model/documents.h"
#include "engine/schedule/batch.h"
#include "engine/schedule/catalog.h"
#include "engine/tensor/process.h"
#include "engine/tensor/view.h"
#include "engine/train/calibrate.h"
#include "engine/train/record.h"
#include "engine/zero/chunk.h"
#include "gpu/device.h"
#include "gpu/local.h"
#include "gpu/memory.h"

namespace sluice::compute {
namespace {

using schedule::Operand;
using schedule::OpId;
using schedule::Setup;
using train::OpBytes;

/// Values near one hundredth, of both signs: products of zeros take less power than those of a
/// model, so processors do more of them. In fp32 each is two values of bf16. Always the same ones;
/// drawn once, as far as they are asked for.
class Values {
 public:
  explicit Values(DType dtype) : one_(dtype == DType::kF16 ? 0x2000 : 0x3c00) {}

  OpBytes::Bytes first(Bytes n) {
    while (values_.size() * sizeof(std::uint16_t) < n)
      values_.push_back(static_cast<std::uint16_t>((random_() >> 8 & 0x80ff) | one_));
    return std::as_writable_bytes(std::span(values_)).first(n);
  }

 private:
  unsigned one_;
  std::minstd_rand random_;
  std::vector<std::uint16_t> values_;
};

/// Zeroed memory outside every tier, for the operands of one op; begun as slots are, on the device
/// or on the host as they are.
class Scratch {
 public:
  Scratch(gpu::Stream& stream, schedule::Sharing sharing)
      : stream_(stream),
        heap_(gpu::device().memory, sharing == schedule::Sharing::kSeparate
                                        ? gpu::Reach::kDevice
                                        : gpu::Reach::kHostToo) {}

  OpBytes::Bytes on_device(Bytes n) {
    const std::span bytes(device_.emplace_back(heap_.allocate(n)).data(), n);
    stream_.run([bytes = gpu::local(bytes)] { tensor::clear(bytes); }).ticket().wait();
    return bytes;
  }
  OpBytes::Bytes on_host(Bytes n) {
    const std::span bytes(host_.emplace_back(n).data(), n);
    std::ranges::fill(bytes, std::byte{0});
    return bytes;
  }
  /// What is longer than kDrawn repeats itself: what a device keeps may be tens of gigabytes, a
  /// minute to draw.
  void fill(OpBytes::Bytes of, Values& values) {
    const Bytes drawn = std::min(of.size(), kDrawn);
    copy(of.first(drawn), values.first(drawn));
    for (Bytes done = drawn, n = 0; done < of.size(); done += n) {
      n = std::min(done, of.size() - done);
      copy(of.subspan(done, n), of.first(n));
    }
  }
  void copy(OpBytes::Bytes to, OpBytes::Bytes from) {
    stream_.copy(to.data(), from.data(), to.size()).ticket().wait();
  }

 private:
  static constexpr Bytes kDrawn = 32_MiB;
  gpu::Stream& stream_;
  gpu::DeviceHeap heap_;
  std::vector<gpu::DeviceBlock> device_;
  std::vector<gpu::PinnedSlab> host_;
};

/// Bytes of each buffer that a block's op has under this name.
std::vector<Bytes> sizes_of(Operand name, const Setup& setup, const shape::Block& block) {
  const schedule::Sizes sizes = schedule::sizes_of(setup);
  switch (name) {
    case Operand::kWeights:
    case Operand::kGradients: {
      std::vector<Bytes> segments;
      for (const int s : block.segments) {
        segments.push_back(setup.segment_elems(s) * size_of(setup.compute));
      }
      return segments;
    }
    case Operand::kInput:
    case Operand::kOutput:
    case Operand::kInputGradient:
    case Operand::kOutputGradient:
      return {sizes.activation};
    case Operand::kBatch:
    case Operand::kHostBatch:
      return {sizes.batch};
    case Operand::kKept:
      return {block.kind == shape::BlockKind::kHead ? setup.logits : sizes.kept};
    case Operand::kLoss:
      return {sizes.loss};
    case Operand::kControl:
      return {sizeof(train::Control)};
    case Operand::kWorkspace:
      return {};  // what is to be measured
    default:
      throw Error(Errc::kLogic, "an operand that no function of a block has");
  }
}

/// Where documents begin. Attention takes a batch at once where each row is one, and document by
/// document where any row has several; then it needs most for one that fills a row, or all but a
/// place of it where the micro-batch has but one; or, where all go through it side by side, for as
/// many as go at once, or for a long one behind as many short ones (model/documents.h).
enum class Rows { kWhole, kSeveral, kMany, kShortFirst };

std::vector<Rows> rows_of(const Setup& setup, shape::BlockKind kind) {
  const bool attends = kind == shape::BlockKind::kLayer;
  if (!attends || !setup.documents || setup.seq_len == 1) return {Rows::kWhole};
  if (setup.seq_len <= model::kDocumentScratch) return {Rows::kWhole, Rows::kSeveral};
  return {Rows::kWhole, Rows::kSeveral, Rows::kMany, Rows::kShortFirst};
}

/// Of place `i` of so many, in its document.
std::int64_t position(Rows rows, std::int64_t i, std::int64_t places, std::int64_t seq) {
  const std::int64_t together = places / model::kDocumentScratch;
  switch (rows) {
    case Rows::kWhole:
      break;
    case Rows::kSeveral:
      return i + 1 == places ? 0 : i % seq;
    case Rows::kMany:
      return i % seq % model::kDocumentScratch;
    case Rows::kShortFirst:
      return i < together ? 0 : std::min(i - together, i % seq);
  }
  return i % seq;
}

void fill_batch(std::span<std::int64_t> buffer, const Setup& setup, Rows rows) {
  const schedule::Batch batch = schedule::batch_of(buffer);
  const auto places = static_cast<std::int64_t>(batch.positions.size());
  for (std::int64_t i = 0; i < places; ++i) {
    batch.positions[static_cast<std::size_t>(i)] = position(rows, i, places, setup.seq_len);
  }
  schedule::mark_documents(batch, static_cast<std::size_t>(setup.seq_len));
}

OpBytes scratch_op(const Setup& setup, const shape::Block& block, OpId id, Rows rows,
                   Scratch& scratch, Values& values) {
  OpBytes op;
  op.id = id;
  op.where.segment = block.segments.front();
  for (const schedule::OperandSpec& spec : schedule::row_of(id).operands) {
    for (const Bytes bytes : sizes_of(spec.name, setup, block)) {
      const bool host = spec.name == Operand::kHostBatch || spec.name == Operand::kControl;
      op.bind(spec.name, host ? scratch.on_host(bytes) : scratch.on_device(bytes));
    }
  }
  for (const Operand read :
       {Operand::kWeights, Operand::kInput, Operand::kOutputGradient, Operand::kKept}) {
    for (const OpBytes::Bytes operand : op.all(read)) scratch.fill(operand, values);
  }
  if (op.has(Operand::kControl)) op.values<train::Control>(Operand::kControl).front() = {};
  if (op.has(Operand::kBatch)) {
    const auto batch = scratch.on_host(op[Operand::kBatch].size());
    fill_batch(OpBytes::as<std::int64_t>(batch), setup, rows);
    scratch.copy(op[Operand::kBatch], batch);
    if (op.has(Operand::kHostBatch)) std::ranges::copy(batch, op[Operand::kHostBatch].begin());
  }
  return op;
}

std::vector<OpId> ops_of(const Setup& setup, shape::BlockKind kind) {
  switch (kind) {
    case shape::BlockKind::kEmbed:
      return {OpId::kEmbedForward, OpId::kEmbedBackward};
    case shape::BlockKind::kLayer:
      if (!setup.may_keep()) return {OpId::kLayerForward, OpId::kLayerBackward};
      return {OpId::kLayerForward, OpId::kLayerBackward, OpId::kLayerForwardKeep,
              OpId::kLayerBackwardKept};
    case shape::BlockKind::kHead:
      if (!setup.may_keep_logits()) return {OpId::kHeadTrain, OpId::kHeadLoss};
      return {OpId::kHeadTrain, OpId::kHeadTrainKeep, OpId::kHeadLoss};
  }
  return {};
}

/// What an op has to read and to write.
Bytes bytes_of(const OpBytes& op) {
  Bytes bytes = 0;
  for (const schedule::OperandSpec& spec : schedule::row_of(op.id).operands) {
    const Bytes times = spec.access == schedule::Access::kUpdate ? 2 : 1;
    for (const OpBytes::Bytes operand : op.all(spec.name)) bytes += times * operand.size();
  }
  return bytes;
}

/// On the host a step finds little of what an op needs in a cache: other layers, and the update,
/// were there since, unless all of them fit. The caches of a device are too small to matter.
class Caches {
 public:
  explicit Caches(Bytes of_run)
      : others_(gpu::device().unified
                    ? train::cleared_by(last_cache(), of_run, host_memory().available)
                    : 0) {}
  void clear() {
    for (std::size_t i = 0; i < others_.size(); i += kLine) ++others_[i];
  }

 private:
  static constexpr Bytes kLine = 64;
  std::vector<std::uint8_t> others_;
};

struct Tried {
  tensor::Usage used;
  Bytes bytes;  ///< that the op has to read and to write
};

/// Runs ops outside of any program, on the stream of compute and on scratch memory of their own.
class Trial {
 public:
  Trial(gpu::Stream& stream, const Setup& setup, const train::Numerics& numerics, Bytes most)
      : stream_(stream),
        setup_(setup),
        numerics_(numerics),
        most_(most),
        values_(setup.compute),
        caches_(setup.model->parameters() * zero::kStateBytesPerElem) {}

  /// `often` is given what runs the op once and gives its seconds.
  template <class Often>
  Tried run(const shape::Block& block, OpId id, Rows rows, const Often& often) {
    Scratch scratch(stream_, setup_.sharing);
    const OpBytes op = scratch_op(setup_, block, id, rows, scratch, values_);
    // On the host these are addresses, and of a plan that is too big all that it lacks can be said.
    const Bytes free = gpu::free_memory();
    tensor::Workspace arena =
        tensor::Workspace::measuring(gpu::device().unified ? free : std::min(free, most_));
    const std::function<double()> once = [&] { return seconds_of(op, arena); };
    often(once);
    return {arena.peak(), bytes_of(op)};
  }

 private:
  double seconds_of(const OpBytes& op, tensor::Workspace& arena) {
    stream_.run([&] { caches_.clear(); });
    const gpu::Event begin = stream_.record();
    double used = 0;  // where the device is the host
    stream_.run([&] {
      const double before = processor_seconds();
      run_in(arena, setup_, numerics_, op.local());
      used = processor_seconds() - before;
    });
    const gpu::Event end = stream_.record();
    end.ticket().wait();
    return train::sustained(std::max(gpu::seconds_between(begin, end), 1e-9), used, quota_);
  }

  gpu::Stream& stream_;
  const Setup& setup_;
  const train::Numerics& numerics_;
  Bytes most_;
  Values values_;
  Caches caches_;
  const std::optional<CpuQuota> quota_ = cores().quota;
};

struct Kind {
  OpId id;
  const shape::Block* block;  ///< the first that has it: all layers have one shape
};

std::vector<Kind> kinds_of(const Setup& setup) {
  std::vector<Kind> kinds;
  for (const shape::Block& block : setup.model->blocks) {
    for (const OpId id : ops_of(setup, block.kind)) {
      if (std::ranges::find(kinds, id, &Kind::id) == kinds.end()) kinds.push_back({id, &block});
    }
  }
  return kinds;
}

}  // namespace

train::Measured ModelOps::measure(gpu::Stream& stream, Bytes most, train::Wanted wanted) {
  // LibTorch keeps both for the thread that asks.
  const auto set_up = [&] {
    tensor::set_deterministic();
    if (numerics_.tf32) tensor::allow_tf32();
    tensor::set_compute_threads(numerics_.threads);
  };
  stream.run(set_up).ticket().wait();
  train::Measured measured;
  Trial trial(stream, setup_, numerics_, most);
  const auto run = [&](const Kind& kind, Rows rows, const auto& often) {
    const auto [used, bytes] = trial.run(*kind.block, kind.id, rows, often);
    measured.workspace.side = std::max(measured.workspace.side, used.side);
    measured.workspace.main = std::max(measured.workspace.main, used.main);
    measured.workspace.spilled = std::max(measured.workspace.spilled, used.spilled);
    measured.bytes[kind.id] = bytes;
  };
  const std::vector<Kind> kinds = kinds_of(setup_);
  const bool timed = wanted == train::Wanted::kTimesToo;
  std::vector<train::Turn> turns;
  for (const Kind& kind : kinds) {
    for (const Rows rows : rows_of(setup_, kind.block->kind)) {
      if (rows != Rows::kWhole || !timed) run(kind, rows, [](const auto& once) { once(); });
    }
    if (!timed) continue;
    const auto alike =
        std::ranges::count(setup_.model->blocks, kind.block->kind, &shape::Block::kind);
    turns.push_back({static_cast<double>(alike), [&](train::Rounds& rounds) {
                       run(kind, Rows::kWhole, [&](const auto& once) { rounds.begin(once); });
                     }});
  }
  train::settle(turns);
  const double total = train::total_of(turns);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const train::Timing timing = turns[i].rounds.timing();
    measured.seconds[kinds[i].id] = timing.seconds;
    if (!train::matters(timing.spread, turns[i].seconds(), total)) continue;
    measured.unsteady.push_back({schedule::kind_of(kinds[i].id).name, timing.spread});
  }
  return measured;
}

std::function<void()> ModelOps::example(gpu::Stream& stream) {
  if (!gpu::device().unified) return {};
  struct Example {
    Scratch scratch;
    OpBytes op = {};
    tensor::Workspace arena = tensor::Workspace::measuring(gpu::free_memory());
  };
  const auto is_layer = [](const shape::Block& b) { return b.kind == shape::BlockKind::kLayer; };
  const auto layer = std::ranges::find_if(setup_.model->blocks, is_layer);
  const auto example = std::make_shared<Example>(Scratch(stream, setup_.sharing));
  Values values(setup_.compute);
  example->op =
      scratch_op(setup_, *layer, OpId::kLayerBackward, Rows::kWhole, example->scratch, values);
  return [this, &stream, example] {
    const auto once = [&] { run_in(example->arena, setup_, numerics_, example->op.local()); };
    stream.run(once).ticket().wait();
  };
}

}  // namespace sluice::compute
