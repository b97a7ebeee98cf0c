#include "engine/train/assembly.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/memory/resident.h"
#include "engine/train/delay.h"
#include "engine/train/disks.h"
#include "engine/train/first_touch.h"
#include "engine/train/loss_scale.h"
#include "gpu/local.h"

namespace sluice::train {

using prefetch::Tier;

namespace {

constexpr std::size_t kStepsTraced = 4;

std::size_t ops_kept(const plan::Programs& programs) {
  std::size_t ops = programs.step->ops().size();
  if (programs.evaluation) ops += programs.evaluation->ops().size();
  return kStepsTraced * ops;
}

data::Order order_of(bool shuffle) {
  return shuffle ? data::Order::kShuffled : data::Order::kSequential;
}

std::optional<nvme::Store> open_store(const Job& job, Bytes bytes,
                                      const std::vector<double>& speeds) {
  if (bytes == 0) return std::nullopt;
  return std::make_optional<nvme::Store>(job.tiers.nvme.paths, bytes, job.aio, allow_ram(job),
                                         speeds, job.hooks.wrap_queue);
}

std::optional<checkpoint::Writer> open_writer(const Job& job, const shape::Model& model,
                                              const cpu_adam::Optimizer& optimizer) {
  if (!job.saves) return std::nullopt;
  return std::make_optional<checkpoint::Writer>(
      model, job.final_dtype, std::filesystem::path(job.folder) / "final", job.shard_size,
      job.companions, threads_of(optimizer), job.aio);
}

/// The next decision counts the update that waits.
Control begin_of(const Job& job, const checkpoint::Position& at) {
  const int waiting = update_waits(at) ? 1 : 0;
  return {at.applied + waiting, at.skipped_in_row, first_loss_scale(job.loss_scale, at.loss_scale),
          at.scale_held};
}

/// All that a drive may be read into or written from: the host's memory.
std::vector<std::span<std::byte>> reached_by_drives(const memory::SlotMemory& memory,
                                                    schedule::Sharing sharing) {
  std::vector<std::span<std::byte>> all;
  for (prefetch::PoolId pool = 0; pool < memory.pools().size(); ++pool) {
    const Tier tier = memory.pools()[pool].tier;
    const bool host =
        tier == Tier::kCpu || (tier == Tier::kGpu && sharing == schedule::Sharing::kUnified);
    if (host && !memory.bytes(pool).empty()) all.push_back(memory.bytes(pool));
  }
  return all;
}

/// What is not shared is out of the host's reach, also where it could be reached.
gpu::Reach reach_of(schedule::Sharing sharing) {
  return sharing == schedule::Sharing::kSeparate ? gpu::Reach::kDevice : gpu::Reach::kHostToo;
}

std::unique_ptr<executor::Driver> make_driver(Execution execution,
                                              const executor::Resources& resources,
                                              executor::Handler& handler) {
  switch (execution) {
    case Execution::kSerial:
      return executor::serial(resources, handler);
    case Execution::kOverlapped:
      return executor::overlapped(resources, handler);
  }
  throw Error(Errc::kLogic, "an execution of no kind");
}

}  // namespace

Session::Assembly::Assembly(Session& s)
    : session(s),
      rules{s.job_.optimizer,  s.job_.scheduler, s.job_.train,
            s.job_.loss_scale, s.steps_,         begin_of(s.job_, s.position_)},
      sampler(s.train_.samples(), s.job_.seed, order_of(s.job_.data.shuffle)),
      batches(s.train_, s.valid_data(), sampler, s.setup_.micro_batch_size, s.setup_.micro_batches,
              s.evaluation_batches()),
      optimizer(s.job_.cpu_adam),
      store(open_store(s.job_, s.plan_.planned[index(Tier::kNvme)], s.drive_speeds_)),
      ledger(s.plan_.limits.tiers),
      memory(s.plan_.catalog.pools, s.plan_.catalog.tags, ledger, store ? &*store : nullptr,
             reach_of(s.setup_.sharing)),
      host(s.setup_, rules, std::move(s.first_values_), batches, optimizer),
      arithmetic(s.setup_, s.plan_.catalog.routes, rules.optimizer),
      writer(open_writer(s.job_, *s.setup_.model, optimizer)),
      saver(s.setup_, s.job_),
      conductor(s.setup_, memory, host, arithmetic, optimizer, *s.compute_, s.stream_,
                writer ? &*writer : nullptr, saver, s.position_.nvme_written) {
  first_touch(memory, optimizer, s.stream_, static_cast<unsigned>(s.numerics_.threads));
  memory.pin();
  if (store) store->enrol(reached_by_drives(memory, s.setup_.sharing));
  const auto& workspace = s.plan_.catalog.residents->info(s.plan_.catalog.workspace);
  const std::span at(memory.address(workspace.pool, 0), s.setup_.workspace);
  s.compute_->set_workspace(gpu::local(at), s.workspace_.side);

  executor::Handler* handler = &conductor;
  if (s.job_.hooks.wrap_handler) {
    wrapped = s.job_.hooks.wrap_handler(conductor, memory);
    handler = wrapped.get();
  }
  executor::Resources resources{s.plan_.catalog.residents, s.plan_.catalog.pools, s.plan_.lanes};
  trace = s.job_.hooks.trace;
  if (trace == nullptr && s.job_.profile.steps) {
    trace = &ring.emplace(ops_kept(s.plan_.programs));
  }
  resources.trace = trace;
  driver = make_driver(s.job_.execution, resources, *handler);
  watchdog.emplace(s.job_.watchdog, s.plan_.forecast.seconds(), *driver, memory, s.job_.on_hang);
}

void Session::Assembly::note_workspace() {
  const WorkspaceUse peak = session.compute_->peak();
  ledger.set_peak(Tier::kGpu, prefetch::MemoryTag::kWorkspace, peak.main + peak.side);
}

std::string Session::Assembly::memory_report() {
  note_workspace();
  std::string text = ledger.peak_table();
  const Bytes committed = ledger.used(Tier::kGpu) + ledger.used(Tier::kCpu);
  if (const auto resident = memory::peak_resident()) {
    text += fmt::format("\nprocess: {} resident at most; gpu and cpu tiers together hold {}",
                        format_bytes(*resident), format_bytes(committed));
  }
  return text;
}

}  // namespace sluice::train
