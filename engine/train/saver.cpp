#include "engine/train/saver.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoints.h"
#include "engine/schedule/catalog.h"
#include "engine/schedule/gradient_route.h"
#include "engine/train/record.h"

namespace sluice::train {

namespace fs = std::filesystem;
using schedule::Operand;
using schedule::OpId;

namespace {

static_assert(sizeof(checkpoint::Position) <= schedule::kReceiptBytes);

static_assert(sizeof(GradientReceipt) <= schedule::kReceiptBytes);

/// The n-th behind the position: one of each chunk's state, then one of each chunk's gradient.
template <class Receipt>
Receipt receipt(OpBytes::Bytes receipts, std::size_t n) {
  Receipt value;
  std::memcpy(&value, &receipts[(n + 1) * schedule::kReceiptBytes], sizeof value);
  return value;
}

}  // namespace

Saver::Saver(const schedule::Setup& setup, const Job& job)
    : job_(job), folder_(fs::path(job.folder) / "checkpoints"), companions_(job.companions) {
  if (!companions_.config) companions_ = checkpoint::companions_of(setup.model->decoder);
  laid_out_.sluice = job.version;
  laid_out_.settings = job.settings;
  laid_out_.segments = checkpoint::places_of(*setup.model);
  checkpoint::lay_out(laid_out_, setup.chunks, job.shard_size);
  if (setup.delays()) {
    std::vector<DType> dtypes;
    for (int s = 0; s < static_cast<int>(setup.layouts.size()); ++s) {
      dtypes.push_back(schedule::gradient_route(setup, s).dtype);
    }
    with_gradients_ = laid_out_;
    checkpoint::lay_out_gradients(with_gradients_, setup.chunks, dtypes, job.shard_size);
  }
  std::size_t records = 0;
  for (const auto& chunks : setup.chunks) {
    first_record_.push_back(records);
    records += chunks.size();
  }
}

Saver::~Saver() {
  // The kernel may still take requests of a drive that hangs: were their files closed, it could
  // find others under the same numbers. The process ends now.
  for (auto& [step, open] : open_) {
    if (open.hangs) static_cast<void>(open.writer.release());
  }
}

Saver::Open& Saver::open_of(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  return open_[step];
}

bool Saver::failed(const Open& open) {
  const std::lock_guard lock(mutex_);
  return !open.error.empty();
}

void Saver::given_up(Open& open, const char* why, bool hangs) {
  const std::lock_guard lock(mutex_);
  if (open.error.empty()) open.error = why;
  open.hangs |= hangs;
}

void Saver::run(const OpBytes& op, Bytes nvme_written) {
  Open& open = open_of(Tag::unpack(op.tag).step);
  const bool last = op.id == OpId::kSealCheckpoint;
  try {
    if (!failed(open)) {
      if (op.id == OpId::kBeginCheckpoint) begin(open, op, nvme_written);
      if (op.id == OpId::kWriteRecord) write_record(open, op);
      if (op.id == OpId::kWriteGradient) write_gradient(open, op);
      if (last) seal(open, op);
    }
  } catch (const Error& e) {
    given_up(open, e.what(), e.code == Errc::kWatchdog);
    if (e.code == Errc::kWatchdog) throw;
  } catch (const std::exception& e) {
    given_up(open, e.what(), false);
  }
  // Nobody else is at it: it removes what it made.
  if (last && failed(open) && !open.hangs) open.writer.reset();
}

void Saver::begin(Open& open, const OpBytes& op, Bytes nvme_written) const {
  const Control& control = op.values<const Control>(Operand::kControl).front();
  open.begin = now_ns();
  const auto [kind, step] = Tag::unpack(op.tag);
  checkpoint::Position& position = op.values<checkpoint::Position>(Operand::kPosition).front();
  position = {step, control.applied, control.skipped_in_row, nvme_written, 0, control.scale_held};
  if (!job_.loss_scale.fixed) position.loss_scale = control.loss_scale;
  open.writer = std::make_unique<checkpoint::StateWriter>(
      kind == Tag::Kind::kPendingCheckpoint ? with_gradients_ : laid_out_,
      checkpoint::new_checkpoint(folder_, step), companions_, job_.aio);
}

std::size_t Saver::record(const prefetch::Where& chunk) const {
  return first_record_[static_cast<std::size_t>(chunk.segment)] +
         static_cast<std::size_t>(chunk.chunk);
}

void Saver::write_record(const Open& open, const OpBytes& op) const {
  // Waited for here: its error is the checkpoint's, not the run's.
  open.writer->write(record(op.where), op[Operand::kState]).wait();
}

void Saver::write_gradient(const Open& open, const OpBytes& op) const {
  open.writer->write_gradient(record(op.where), op[Operand::kGradient]).wait();
}

void Saver::seal(const Open& open, const OpBytes& op) const {
  using Pending = checkpoint::Position::Pending;
  const auto receipts = op[Operand::kReceipts];
  const checkpoint::Manifest& manifest = open.writer->manifest();
  auto position = OpBytes::as<checkpoint::Position>(receipts).front();
  std::vector<std::uint64_t> sums;
  for (std::size_t i = 0; i < manifest.records.size(); ++i) {
    sums.push_back(receipt<std::uint64_t>(receipts, i));
  }
  std::vector<checkpoint::GradientSum> gradients;
  for (std::size_t i = 0; i < manifest.gradients.size(); ++i) {
    const auto saved = receipt<GradientReceipt>(receipts, manifest.records.size() + i);
    gradients.push_back({saved.sum, saved.factor});
    position.pending = saved.applied ? Pending::kApplied : Pending::kSkipped;
    position.pending_lr = saved.lr;
  }
  if (position.pending == Pending::kApplied) --position.applied;  // decided, not in the state
  open.writer->seal(position, sums, gradients);
}

std::optional<fs::path> Saver::publish(std::int64_t step) {
  Open open;
  {
    const std::lock_guard lock(mutex_);
    open = std::move(open_.extract(step).mapped());
  }
  try {
    SLUICE_CHECK(open.error.empty(), kIo, open.error);
    if (job_.before_checkpoint) job_.before_checkpoint();
    open.writer->publish();
  } catch (const std::exception& e) {
    log::error(fmt::format("no checkpoint of step {}: {}; the run goes on", step, e.what()));
    return std::nullopt;
  }
  const fs::path path = open.writer->target();
  log::info(fmt::format("checkpoint {}: {} in {:.1f} s", path.string(),
                        format_bytes(checkpoint::bytes_of(open.writer->manifest())),
                        to_seconds(now_ns() - open.begin)));
  if (job_.on_checkpoint) job_.on_checkpoint(path.string());
  try {
    checkpoint::prune_checkpoints(folder_, path.filename().string(),
                                  {job_.checkpoint.keep, job_.checkpoint.keep_every, job_.damaged});
  } catch (const std::exception& e) {
    log::error(fmt::format("old checkpoints stay: {}", e.what()));
  }
  return path;
}

}  // namespace sluice::train
