#include "engine/train/session.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/data/descriptor.h"
#include "engine/memory/limits.h"
#include "engine/plan/rates.h"
#include "engine/shape/kept.h"
#include "engine/train/calibrate.h"
#include "engine/train/delay.h"
#include "engine/train/disks.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "nvme/filesystem.h"
#include "nvme/store.h"
#include "nvme/sums.h"

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

/// Sizes, beginnings and ends of its files, as one sum: whether they are still the same.
std::string contents_of(const data::Dataset& data) {
  constexpr Bytes kLooked = 64_KiB;
  std::uint64_t sum = 0;
  std::vector<std::byte> bytes;
  for (const auto& file : data.files()) {
    const data::Descriptor opened(file.ids.path(), O_RDONLY);
    const Bytes size = opened.size();
    const Bytes part = std::min(size, kLooked);
    bytes.resize(2 * part);
    opened.read(0, std::span(bytes).first(part));
    opened.read(size - part, std::span(bytes).last(part));
    sum = nvme::sum_of(bytes, sum + size);
  }
  return checkpoint::hex(sum);
}

/// The files of one key; what is refused of them begins with it.
data::Dataset open_data(const Job& job, const char* key, const std::vector<std::string>& globs) {
  try {
    return {job.data, globs, job.decoder.vocab};
  } catch (const Error& e) {
    throw Error(e.code, fmt::format("{}: {}", key, e.what()));
  }
}

/// What the weights begin as; of a checkpoint also where its run stood.
std::unique_ptr<FirstValues> open_first_values(const Job& job, schedule::Setup& setup,
                                               checkpoint::Position& position) {
  if (!job.resume.empty()) {
    auto reader = std::make_unique<const checkpoint::StateReader>(job.resume, job.aio);
    reader->check_model(*setup.model);
    check_waiting(*reader, setup);
    setup.begins_pending = update_waits(reader->manifest().position);
    position = reader->manifest().position;
    return resumed_values(std::move(reader), job.checkpoint.verify);
  }
  if (job.weights.empty()) return drawn_values(job.seed, setup.model);
  return stored_values(job.weights, setup.model, job.aio);
}

/// How its documents were packed; nothing of a stream.
std::string describe(const char* key, const data::Dataset& data) {
  if (data.documents() == nullptr) return {};
  return fmt::format("{}: {}\n", key, data.documents()->describe(data.seq_len()));
}

std::optional<data::Dataset> open_valid(const Job& job, const data::Dataset& train) {
  if (job.data.valid.empty()) return std::nullopt;
  data::Dataset valid = open_data(job, "data.valid", job.data.valid);
  const auto kind = [](const data::Dataset& data) {
    return fmt::format("{} is {}", data.files().front().ids.path(),
                       data.is_text() ? "text" : "token ids");
  };
  SLUICE_CHECK(valid.is_text() == train.is_text(), kConfig,
               fmt::format("data.train: {}, and data.valid: {}: they do not mix; name one kind, or "
                           "set data.format",
                           kind(train), kind(valid)));
  const bool one_tokenizer = train.tokenizer_sum().empty() || valid.tokenizer_sum().empty() ||
                             train.tokenizer_sum() == valid.tokenizer_sum();
  SLUICE_CHECK(one_tokenizer, kConfig,
               fmt::format("data.train: {}, and data.valid: {}: made by different tokenizers; "
                           "tokenize both with the model's",
                           train.files().front().ids.path(), valid.files().front().ids.path()));
  return valid;
}

schedule::Setup write_setup(const Job& job, bool documents) {
  schedule::Setup setup = schedule::make_setup(shape::make_model(job.decoder), job.homes);
  setup.sharing = gpu::device().unified && job.tiers.gpu.unified == memory::Unified::kAuto
                      ? schedule::Sharing::kUnified
                      : schedule::Sharing::kSeparate;
  setup.compute = job.compute;
  setup.saves_weights = job.final_dtype == job.compute;
  setup.grad_dtype = job.grad_dtype;
  setup.micro_batch_size = *job.train.train_micro_batch_size_per_gpu;
  setup.seq_len = job.data.seq_len;
  setup.micro_batches = *job.train.gradient_accumulation_steps;
  setup.documents = documents;
  setup.update = job.optimizer.update.value_or(schedule::Update::kEnd);
  setup.may_arrive = needs_all_gradients(job.train, job.loss_scale) == NeedsAll::kNothing;
  SLUICE_CHECK(setup.may_arrive || setup.update != schedule::Update::kArriving, kConfig,
               "optimizer.update is arriving, and clipping by one norm or skipping steps needs "
               "every gradient before the first update");
  setup.picks_update = !job.optimizer.update;
  setup.clips_segments = job.train.gradient_clipping && job.train.clip_scope == ClipScope::kSegment;
  setup.sweep = setup.streams_params() ? setup.micro_batches : 1;
  SLUICE_CHECK(setup.homes.recompute != schedule::Recompute::kNone || setup.may_keep(), kConfig,
               "activation_checkpointing.policy: none keeps what every layer's forward computed, "
               "for which its weights must stay on the device: set "
               "zero_optimization.offload_param.device: none, or policy: auto");
  return setup;
}

Numerics choose_numerics(const Job& job, const schedule::Setup& setup) {
  Numerics numerics;
  numerics.threads = static_cast<int>(job.compute_threads.value_or(core_count()));
  numerics.loss_chunk = job.loss_chunk.value_or(
      shape::auto_loss_chunk(setup.model->decoder, setup.micro_batch_tokens()));
  numerics.mlp_chunk = job.mlp_chunk.value_or(
      shape::auto_mlp_chunk(setup.model->decoder, setup.micro_batch_tokens()));
  SLUICE_CHECK(!job.tf32 || gpu::device().backend == gpu::Backend::kCuda, kConfig,
               fmt::format("precision.tf32 is true: this sluice is built for {}, which has no such "
                           "products; write false, or build with --preset cuda",
                           name_of(gpu::device().backend)));
  numerics.tf32 = job.tf32;
  return numerics;
}

/// Room for them is only looked at where it is a small part of the device's: it is tried before the
/// plan, outside every tier.
Bytes logits_to_keep(const schedule::Setup& setup, const Numerics& numerics,
                     const plan::Limits& limits) {
  const Bytes bytes = shape::kept_logits_of(setup.model->decoder, setup.micro_batch_tokens(),
                                            numerics.loss_chunk, setup.compute)
                          .bytes;
  return bytes <= limits.tiers[index(prefetch::Tier::kGpu)] / 4 ? bytes : 0;
}

/// The folders of the nvme tier: one of the run's where none is named.
std::vector<std::string> nvme_paths(const Job& job) {
  if (!job.tiers.nvme.paths.empty()) return job.tiers.nvme.paths;
  return {(std::filesystem::path(job.folder) / "nvme").string()};
}

std::int64_t count_evaluation_batches(const Job& job, const schedule::Setup& setup,
                                      const std::optional<data::Dataset>& valid) {
  if (!valid) return 0;
  const std::int64_t batches = valid->samples() / setup.micro_batch_size;
  SLUICE_CHECK(batches > 0, kConfig,
               fmt::format("data.valid has {} samples of {} tokens, a micro-batch takes {}",
                           valid->samples(), valid->seq_len(), setup.micro_batch_size));
  return std::min(job.eval.batches, batches);
}

plan::Rates without_checks(plan::Rates rates) {
  rates.checks = 0;
  return rates;
}

/// So much longer a step may get for `aio.verify: auto`.
constexpr double kMostOfAStep = 0.02;

/// What a run sets aside of what was measured. Workers allocate in no fixed order, so their part
/// has room for twice what was seen.
WorkspaceUse set_aside(const WorkspaceUse& measured) {
  return {.main = round_up(measured.main, kAlignment),
          .side = round_up(2 * measured.side + 64_KiB, kAlignment)};
}

}  // namespace

Inputs read_inputs(const Job& job) {
  data::Dataset train = open_data(job, "data.train", job.data.train);
  std::optional<data::Dataset> valid = open_valid(job, train);
  const std::int64_t steps = count_steps(job.train, train);
  schedule::Setup setup =
      write_setup(job, train.documents() != nullptr || (valid && valid->documents() != nullptr));
  const shape::Decoder& decoder = setup.model->decoder;
  SLUICE_CHECK(
      setup.seq_len <= decoder.max_positions || decoder.positions == shape::Positions::kRotary,
      kConfig,
      fmt::format("data.seq_len is {}, the model has {} learned positions: lower seq_len",
                  setup.seq_len, decoder.max_positions));
  checkpoint::Position position;
  auto first_values = open_first_values(job, setup, position);
  SLUICE_CHECK(position.step <= steps, kConfig,
               fmt::format("the run has {} steps, and {} is of step {}: raise train.steps; `sluice "
                           "export` makes weights of a checkpoint",
                           steps, job.resume, position.step));
  if (setup.uses_nvme()) nvme::check_folders(nvme_paths(job), 0, allow_ram(job));
  count_evaluation_batches(job, setup, valid);
  return {std::move(train), std::move(valid),        steps,
          std::move(setup), std::move(first_values), position};
}

Session::Session(const Job& job, Inputs inputs)
    : job_(job),
      train_(std::move(inputs.train)),
      valid_(std::move(inputs.valid)),
      steps_(inputs.steps),
      position_(inputs.position),
      delayed_start_(delayed_start(job.optimizer, inputs.steps)),
      setup_(std::move(inputs.setup)),
      stream_("compute"),
      first_values_(std::move(inputs.first_values)) {
  // Asked for by name: refused now, if at all. Models and final weights come and go by it too.
  if (job_.aio.engine != nvme::Engine::kAuto) nvme::make_queue(job_.aio, nvme::Caching::kDirect);
  numerics_ = choose_numerics(job_, setup_);
  job_.settings["compute.threads"] = std::to_string(numerics_.threads);
  job_.settings["compute.loss_chunk"] = std::to_string(numerics_.loss_chunk);
  job_.settings["compute.mlp_chunk"] = std::to_string(numerics_.mlp_chunk);
  job_.settings["train.steps"] = std::to_string(steps_);
  job_.settings["data.train, samples"] = std::to_string(train_.samples());
  job_.settings["data.train, contents"] = contents_of(train_);
  job_.tiers.nvme.paths = nvme_paths(job_);
  gpu::set_pinned_limit(job_.tiers.cpu.pinned_limit.value_or(std::numeric_limits<Bytes>::max()));
  const memory::Machine machine = memory::this_machine();
  plan::Limits limits{memory::resolve_limits(job_.tiers, machine),
                      memory::host_limit(job_.tiers, machine)};
  plan::require_any_placement(setup_, limits, evaluation_batches());
  setup_.logits = logits_to_keep(setup_, numerics_, limits);
  compute_ = job_.make_compute(setup_, numerics_);
  Bytes& of_device = limits.tiers[index(prefetch::Tier::kGpu)];
  const Measured measured =
      compute_->measure(stream_, of_device, job_.rates ? Wanted::kWorkspace : Wanted::kTimesToo);
  of_device -= std::min(of_device, memory::taken_since(machine));
  if (job_.hooks.limits) job_.hooks.limits(limits.tiers);
  workspace_ = set_aside(measured.workspace);
  setup_.workspace = workspace_.main + workspace_.side;
  const auto minimum = plan::require_minimum(setup_, limits, evaluation_batches());
  check_disks(job_, setup_, minimum[index(prefetch::Tier::kNvme)]);
  limits.tiers = memory::share_host_memory(limits.tiers, minimum, job_.tiers, machine);
  Calibration machine_does =
      job_.rates ? Calibration{.rates = *job_.rates, .speeds = {}, .stores = job_.cpu_adam.stores}
                 : calibrate(setup_, numerics_, memory::host_bytes(limits.tiers), measured,
                             *compute_, stream_, job_.cpu_adam, job_.tiers.nvme, job_.aio);
  drive_speeds_ = std::move(machine_does.speeds);
  job_.cpu_adam.stores = machine_does.stores;
  const prefetch::Lanes lanes = schedule::make_lanes();
  asked_ = setup_;
  cost_ = plan::cost_model(without_checks(machine_does.rates), lanes);
  plan_ = plan::make_plan(asked_, limits, evaluation_batches(), cost_);
  if (runs_serially()) plan_.forecast = plan::serial_forecast(plan_, cost_);
  setup_ = plan_.setup;
  if (setup_.uses_nvme()) choose_verify(machine_does.rates);
  SLUICE_CHECK(steps_ <= position_.step || last_step() > position_.step, kConfig,
               fmt::format("limits.max_write_total: the first values and one step write more to "
                           "the nvme tier than {}; raise it",
                           format_bytes(*job_.limits.max_write_total)));
  check_disks(job_, setup_, plan_.planned[index(prefetch::Tier::kNvme)]);
}

Session::~Session() = default;

/// Where the run file leaves it open: whether the processors have time to check what the drives
/// carry. The plan is the same either way.
void Session::choose_verify(const plan::Rates& rates) {
  const auto checking = plan::cost_model(rates, schedule::make_lanes());
  const auto checked = runs_serially() ? std::optional(plan::serial_step(plan_, checking))
                                       : plan::steady_step(plan_, checking);
  const double step = plan_.forecast.step_s;
  const bool known = checked && step > 0;
  const double cost = known ? checked->seconds / step - 1 : 0;
  nvme::Verify& verify = job_.aio.verify;
  if (verify == nvme::Verify::kAuto) {
    verify = cost <= kMostOfAStep ? nvme::Verify::kTrue : nvme::Verify::kFalse;
  }
  const bool checks = verify == nvme::Verify::kTrue;
  checks_ = fmt::format("aio.verify: what drives carry is {}checked", checks ? "" : "not ");
  if (rates.checks > 0) {
    checks_ += fmt::format(", XXH3 at {:.1f} GB/s of a core", rates.checks / 1e9);
  }
  checks_ += known ? fmt::format(", {:.1f}% of the simulated step", 100 * cost)
                   : ", a step is too long to simulate what that costs";
  if (known && checks) plan::add_checks(plan_, *checked);
}

std::int64_t Session::evaluation_batches() const {
  return count_evaluation_batches(job_, setup_, valid_);
}

std::int64_t Session::evaluation_samples() const {
  return evaluation_batches() * setup_.micro_batch_size;
}

/// Of those that the drives may be written by. Evaluations write block inputs where those are
/// there: each step is taken for one that is evaluated. A delayed one applies one update too, or
/// leaves it to a drain; the one that waits already comes on top.
std::int64_t Session::last_step() const {
  if (!job_.limits.max_write_total) return steps_;
  const auto written = [](const auto& program) {
    return program ? plan::moved(*program, schedule::LaneKind::kNvmeWrite) : 0;
  };
  const plan::Programs& programs = plan_.programs;
  const Bytes waiting = setup_.begins_pending ? written(programs.delayed.drain) : 0;
  const Bytes spent = position_.nvme_written + written(programs.init) + waiting;
  const Bytes left = *job_.limits.max_write_total - std::min(*job_.limits.max_write_total, spent);
  const Bytes each = written(programs.step) + written(programs.evaluation);
  if (each == 0) return steps_;
  return std::min(steps_, position_.step + static_cast<std::int64_t>(left / each));
}

std::string Session::report() const {
  const bool trains = steps_ > 0;
  Bytes largest = 0;  // state of a chunk
  for (const auto& segment : setup_.chunks) {
    for (const auto& chunk : segment) {
      largest = std::max(largest, chunk.elems * zero::kStateBytesPerElem);
    }
  }
  return fmt::format(
      "model: {} parameters in {} segments, {} chunks of the optimizer, up to {} of state\n"
      "first weights: {}\n"
      "{}"
      "step: {} x {} sequences of {} tokens, {} in all, {} steps\n"
      "{}"
      "workspace: {} measured, {} for workers\n{}{}{}",
      setup_.model->parameters(), setup_.model->segments.size(), setup_.chunk_count(),
      format_bytes(largest),
      !job_.resume.empty()   ? fmt::format("{}, after step {}", job_.resume, position_.step)
      : job_.weights.empty() ? fmt::format("drawn from seed {}", job_.seed)
                             : job_.weights,
      describe("data.train", train_) + (valid_ ? describe("data.valid", *valid_) : ""),
      setup_.micro_batches, setup_.micro_batch_size, setup_.seq_len, setup_.tokens_per_step(),
      steps_,
      trains && setup_.delays() ? describe_delay(delayed_start_, last_step(), position_) : "",
      format_bytes(workspace_.main), format_bytes(workspace_.side),
      plan::report(plan_, job_.tiers.nvme.endurance) +
          (runs_serially() || !trains
               ? std::string()
               : plan::report(plan::prospects(plan_, asked_, evaluation_batches(), cost_), plan_)),
      checks_.empty() ? "" : "\n", checks_);
}

}  // namespace sluice::train
