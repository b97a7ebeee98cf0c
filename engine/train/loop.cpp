#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/log.h"
#include "engine/train/conductor.h"
#include "engine/train/session.h"

namespace sluice::train {

using prefetch::Tier;

/// The bytes of the tiers and everything that works on them, in the order in which they are needed.
struct Session::Machine {
  explicit Machine(Session& s)
      : rules{s.job_.optimizer, s.job_.scheduler, s.job_.train, s.steps_, s.job_.seed},
        sampler(s.train_.samples(), s.job_.seed,
                s.job_.data.shuffle ? data::Order::kShuffled : data::Order::kSequential),
        batches(s.train_, s.valid_data(), sampler, s.setup_.micro_batch, s.setup_.micro_batches),
        optimizer(s.job_.cpu_adam),
        store(open_store(s)),
        ledger(s.plan_.limits),
        memory(s.plan_.catalog.pools, s.plan_.catalog.tags, ledger, store ? &*store : nullptr),
        workspace(workspace_span(s), s.setup_.workspace - round_up(s.workspace_.main, kAlignment)),
        host(s.setup_, rules, batches, optimizer),
        compute(s.setup_, s.numbers_, workspace),
        writer(s.setup_.model, s.job_.final_dtype,
               (std::filesystem::path(s.job_.folder) / "final").string()),
        conductor(s.setup_, memory, host, compute, s.compute_, writer) {
    handler = &conductor;
    if (s.job_.hooks.wrap_handler) {
      wrapped = s.job_.hooks.wrap_handler(conductor, memory);
      handler = wrapped.get();
    }
    const executor::Machine machine{s.plan_.catalog.residents, s.plan_.catalog.pools,
                                    s.plan_.lanes};
    driver = s.job_.execution == Execution::kSerial ? executor::serial(machine, *handler)
                                                    : executor::overlapped(machine, *handler);
  }

  static std::optional<nvme::Store> open_store(const Session& s) {
    const Bytes bytes = s.plan_.planned[static_cast<std::size_t>(Tier::kNvme)];
    if (bytes == 0) return std::nullopt;
    std::unique_ptr<nvme::IoQueue> queue;
    if (s.job_.hooks.wrap_queue) {
      queue = s.job_.hooks.wrap_queue(nvme::make_queue(s.job_.aio));
    }
    const auto& tier = s.job_.tiers.nvme;
    return std::make_optional<nvme::Store>(
        tier.paths, bytes, s.job_.aio,
        tier.allow_ram_path ? nvme::AllowRam::kYes : nvme::AllowRam::kNo, std::move(queue));
  }

  std::span<std::byte> workspace_span(const Session& s) const {
    const auto& buffer = s.plan_.catalog.residents->info(s.plan_.catalog.workspace);
    return {memory.address(buffer.pool, 0), s.setup_.workspace};
  }

  Rules rules;
  data::Sampler sampler;
  Batches batches;
  cpu_adam::Optimizer optimizer;
  std::optional<nvme::Store> store;
  memory::Ledger ledger;
  memory::SlotMemory memory;
  tensor::Workspace workspace;
  HostOps host;
  ComputeOps compute;
  checkpoint::Writer writer;  // claims its space before step 1
  Conductor conductor;
  std::unique_ptr<executor::Handler> wrapped;
  executor::Handler* handler = nullptr;
  std::unique_ptr<executor::Driver> driver;  // last: it joins its threads first
};

/// The stream of programs, and what is told about each when it has run.
class Session::Loop {
 public:
  Loop(Session& session, Machine& machine) : s_(session), m_(machine) {}

  void run() {
    append(s_.plan_.programs.init, {});
    settle(0);  // the clock of the first step starts when the weights stand
    for (std::int64_t step = 0; step < s_.steps_; ++step) {
      append(s_.plan_.programs.step, {Tag::Kind::kStep, step});
      if (evaluates(step)) append(s_.plan_.programs.evaluation, {Tag::Kind::kEvaluation, step});
    }
    settle(0);
    save();
  }

 private:
  bool evaluates(std::int64_t step) const {
    if (!s_.plan_.programs.evaluation) return false;
    const std::int64_t every = s_.job_.eval.every;
    return step + 1 == s_.steps_ || (every > 0 && (step + 1) % every == 0);
  }

  /// At most two programs are in flight.
  void append(std::shared_ptr<const prefetch::Program> program, Tag tag) {
    settle(1);
    m_.driver->append(std::move(program), tag.pack());
  }

  void settle(std::size_t in_flight) {
    for (const executor::Finished& finished : m_.driver->wait(in_flight)) {
      const Tag tag = Tag::unpack(finished.tag);
      if (tag.kind == Tag::Kind::kStep) {
        step_finished(finished, tag.step);
      } else if (tag.kind == Tag::Kind::kEvaluation) {
        pending_->valid_loss = m_.host.take_evaluation(tag.step);
        report();
      } else {
        last_ = finished;
        read_ = m_.conductor.nvme_read();
        written_ = m_.conductor.nvme_written();
      }
    }
  }

  void step_finished(const executor::Finished& finished, std::int64_t step) {
    const StepResult result = m_.host.take_step(step);
    data::StepRecord record;
    record.step = step + 1;
    record.steps = s_.steps_;
    record.loss = result.loss;
    record.gnorm = result.gnorm;
    record.lr = result.lr;
    record.clip = result.clip;
    record.skipped = result.skipped;
    record.tokens = s_.setup_.tokens_per_step();
    record.seconds = to_seconds(finished.end - last_.end);
    mean_.add(record.seconds);
    record.mean_seconds = mean_.value();
    bound(finished, record);
    record.cpu_bytes = m_.ledger.used(Tier::kCpu);
    record.cpu_limit = m_.ledger.limit(Tier::kCpu);
    record.gpu_bytes = m_.ledger.used(Tier::kGpu);
    record.nvme_read_bytes = m_.conductor.nvme_read() - read_;
    record.nvme_write_bytes = m_.conductor.nvme_written() - written_;
    read_ += record.nvme_read_bytes;
    written_ += record.nvme_write_bytes;
    last_ = finished;
    pending_ = record;
    if (!evaluates(step)) report();
  }

  /// The busiest lane since the last step, and its share of the time.
  void bound(const executor::Finished& finished, data::StepRecord& record) const {
    for (std::size_t lane = 0; lane < finished.busy.size(); ++lane) {
      const double share = to_seconds(finished.busy[lane] - last_.busy[lane]) / record.seconds;
      if (share <= record.bound_share) continue;
      record.bound_share = share;
      record.bound = s_.plan_.lanes[lane].name;
    }
  }

  void report() {
    if (s_.job_.on_step) s_.job_.on_step(*pending_);
    pending_.reset();
  }

  void save() {
    m_.driver->append(s_.plan_.programs.final, Tag{}.pack());
    settle(0);
    m_.writer.finish();
  }

  Session& s_;
  Machine& m_;
  executor::Finished last_{};
  std::optional<data::StepRecord> pending_;
  data::MeanSeconds mean_;
  Bytes read_ = 0;
  Bytes written_ = 0;
};

void Session::run() {
  Machine machine(*this);
  log::info(machine.ledger.table());
  if (machine.store) log::info(machine.store->describe());
  Loop(*this, machine).run();
  const Bytes spilled = machine.workspace.peak().spilled;
  if (spilled > 0) {
    log::warning(fmt::format("LibTorch's workers took {} beyond the workspace, counted in no tier",
                             format_bytes(spilled)));
  }
}

}  // namespace sluice::train
