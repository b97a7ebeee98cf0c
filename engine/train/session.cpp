#include "engine/train/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/memory/limits.h"
#include "engine/model/blocks.h"
#include "engine/tensor/allocator.h"
#include "engine/tensor/process.h"
#include "gpu/device.h"

namespace sluice::train {
namespace {

std::int64_t samples_per_step(const TrainOptions& train) {
  return *train.train_micro_batch_size_per_gpu * *train.gradient_accumulation_steps;
}

std::int64_t count_steps(const TrainOptions& train, const data::Dataset& data) {
  if (train.steps) return *train.steps;
  const std::int64_t batch = samples_per_step(train);
  if (train.tokens) return std::max<std::int64_t>(1, *train.tokens / (batch * data.seq_len()));
  const std::int64_t samples = data.samples() * train.epochs.value_or(1);
  SLUICE_CHECK(samples >= batch, kConfig,
               fmt::format("data.train has {} samples of {} tokens, a step takes {}: lower "
                           "train.train_batch_size or data.seq_len, or set train.steps",
                           samples, data.seq_len(), batch));
  return samples / batch;
}

std::optional<data::Dataset> open_valid(const Job& job) {
  if (job.data.valid.empty()) return std::nullopt;
  return data::Dataset(job.data, job.data.valid, job.decoder.vocab);
}

schedule::Setup write_setup(const Job& job) {
  schedule::Setup setup = schedule::make_setup(shape::make_model(job.decoder), job.homes);
  setup.sharing = gpu::device().unified && job.tiers.gpu.unified == memory::Unified::kAuto
                      ? schedule::Sharing::kUnified
                      : schedule::Sharing::kSeparate;
  setup.compute = job.compute;
  setup.grad_dtype = job.grad_dtype;
  setup.micro_batch = *job.train.train_micro_batch_size_per_gpu;
  setup.seq_len = job.data.seq_len;
  setup.micro_batches = *job.train.gradient_accumulation_steps;
  return setup;
}

Numbers choose_numbers(const Job& job, const schedule::Setup& setup) {
  Numbers numbers;
  numbers.threads = static_cast<int>(
      job.compute_threads.value_or(std::max(1U, std::thread::hardware_concurrency())));
  numbers.loss_chunk = job.loss_chunk.value_or(
      model::auto_loss_chunk(setup.model.decoder, setup.micro_batch * setup.seq_len));
  return numbers;
}

/// OpenMP workers allocate in no fixed order, so their arena has room for twice what was seen.
Bytes side_arena(const tensor::Usage& usage) {
  return round_up(2 * usage.side + 64_KiB, kAlignment);
}

}  // namespace

Session::Session(const Job& job)
    : job_(job),
      train_(job_.data, job_.data.train, job_.decoder.vocab),
      valid_(open_valid(job_)),
      steps_(count_steps(job_.train, train_)),
      setup_(write_setup(job_)),
      compute_("compute") {
  SLUICE_CHECK(setup_.seq_len <= setup_.model.decoder.max_positions ||
                   setup_.model.decoder.positions == shape::Positions::kRotary,
               kConfig,
               fmt::format("data.seq_len is {}, the model has {} learned positions: lower seq_len",
                           setup_.seq_len, setup_.model.decoder.max_positions));
  numbers_ = choose_numbers(job_, setup_);
  if (job_.tiers.nvme.paths.empty()) {
    job_.tiers.nvme.paths = {(std::filesystem::path(job_.folder) / "nvme").string()};
  }
  const plan::Limits limits = memory::resolve_limits(job_.tiers);
  // Measuring takes real memory: what would not fit even without a workspace is refused before.
  plan::make_plan(setup_, limits, evaluation_batches());
  tensor::install_allocator();
  workspace_ = measure();
  setup_.workspace = round_up(workspace_.main, kAlignment) + side_arena(workspace_);
  plan_ = plan::make_plan(setup_, limits, evaluation_batches());
}

Session::~Session() = default;

tensor::Usage Session::measure() {
  tensor::Usage usage;
  compute_
      .run([&] {
        tensor::set_deterministic();
        tensor::set_compute_threads(numbers_.threads);
        usage = measure_workspace(setup_, numbers_);
      })
      .ticket()
      .wait();
  return usage;
}

std::int64_t Session::evaluation_batches() const {
  if (!valid_) return 0;
  const std::int64_t batches = valid_->samples() / setup_.micro_batch;
  SLUICE_CHECK(batches > 0, kConfig,
               fmt::format("data.valid has {} samples of {} tokens, a micro-batch takes {}",
                           valid_->samples(), valid_->seq_len(), setup_.micro_batch));
  return std::min(job_.eval.batches, batches);
}

std::int64_t Session::evaluation_samples() const {
  return evaluation_batches() * setup_.micro_batch;
}

std::string Session::report() const {
  std::size_t chunks = 0;
  for (const auto& segment : setup_.chunks) chunks += segment.size();
  return fmt::format(
      "model: {} parameters in {} segments, {} chunks of the optimizer\n"
      "step: {} x {} sequences of {} tokens, {} in all, {} steps\n"
      "workspace: {} measured, {} for workers\n{}",
      setup_.model.parameters(), setup_.model.segments.size(), chunks, setup_.micro_batches,
      setup_.micro_batch, setup_.seq_len, setup_.tokens_per_step(), steps_,
      format_bytes(workspace_.main), format_bytes(side_arena(workspace_)), plan::report(plan_));
}

}  // namespace sluice::train
