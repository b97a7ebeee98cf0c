#include "engine/train/saver.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoints.h"
#include "engine/schedule/catalog.h"
#include "engine/shape/hf_config.h"
#include "engine/train/record.h"

namespace sluice::train {

namespace fs = std::filesystem;
using schedule::Operand;
using schedule::OpId;

namespace {

static_assert(sizeof(checkpoint::Position) <= schedule::kReceiptBytes);

/// Of all chunks, in order: they lie behind the position.
std::vector<std::uint64_t> sums_of(OpBytes::Bytes receipts) {
  std::vector<std::uint64_t> sums(receipts.size() / schedule::kReceiptBytes - 1);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::memcpy(&sums[i], &receipts[(i + 1) * schedule::kReceiptBytes], sizeof sums[i]);
  }
  return sums;
}

}  // namespace

Saver::Saver(const schedule::Setup& setup, const Job& job)
    : job_(job), folder_(fs::path(job.folder) / "checkpoints"), companions_(job.companions) {
  if (companions_.config.is_null()) {
    companions_.config = shape::to_config_json(setup.model->decoder);
  }
  laid_out_.sluice = job.version;
  laid_out_.settings = job.settings;
  laid_out_.segments = checkpoint::places_of(*setup.model);
  checkpoint::lay_out(laid_out_, setup.chunks, job.shard_size);
  std::size_t records = 0;
  for (const auto& chunks : setup.chunks) {
    first_record_.push_back(records);
    records += chunks.size();
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

void Saver::run(const OpBytes& op, Bytes nvme_written) {
  Open& open = open_of(Tag::unpack(op.tag).step);
  const bool last = op.id == OpId::kSealCheckpoint;
  try {
    if (!failed(open)) {
      if (op.id == OpId::kBeginCheckpoint) begin(open, op, nvme_written);
      if (op.id == OpId::kWriteRecord) write_record(open, op);
      if (last) {
        open.writer->seal(op.values<checkpoint::Position>(Operand::kReceipts).front(),
                          sums_of(op[Operand::kReceipts]));
      }
    }
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    if (open.error.empty()) open.error = e.what();
  }
  if (last && failed(open)) open.writer.reset();  // nobody else is at it: removes what it made
}

void Saver::begin(Open& open, const OpBytes& op, Bytes nvme_written) const {
  const Control& control = op.values<const Control>(Operand::kControl).front();
  open.begin = now_ns();
  const std::int64_t step = Tag::unpack(op.tag).step;
  checkpoint::Position& position = op.values<checkpoint::Position>(Operand::kPosition).front();
  position = {step, control.applied, control.skipped_in_row, nvme_written, 0, control.scale_held};
  if (!job_.loss_scale.fixed) position.loss_scale = control.loss_scale;
  open.writer = std::make_unique<checkpoint::StateWriter>(
      laid_out_, checkpoint::new_checkpoint(folder_, step), companions_, job_.aio);
}

void Saver::write_record(const Open& open, const OpBytes& op) const {
  const std::size_t record = first_record_[static_cast<std::size_t>(op.where.segment)] +
                             static_cast<std::size_t>(op.where.chunk);
  // Waited for here: its error is the checkpoint's, not the run's.
  open.writer->write(record, op[Operand::kState]).wait();
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
                        format_bytes(checkpoint::bytes_of(laid_out_)),
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
