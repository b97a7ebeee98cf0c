#include "tests/train/crown_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "cpu_adam/isa.h"
#include "engine/base/error.h"
#include "gpu/device.h"
#include "tests/support/extent.h"
#include "tests/train/pairwise.h"

namespace sluice::train {
namespace {

using prefetch::Tier;
using schedule::ActivationHome;
using schedule::GradientHome;
using schedule::OptimizerHome;
using schedule::ParamHome;
using schedule::Recompute;
using schedule::Sharing;

enum Axis : std::size_t {
  kTied,
  kCompute,
  kAccumulates,
  kOrder,
  kHomes,
  kMemory,
  kChunk,
  kRecompute,
  kSharing,
  kThreads,
  kStores,
  kIsa,
  kUpdate,
  kEngine,
  kAxes
};

constexpr std::array kComputes = {DType::kF32, DType::kBf16, DType::kF16};
constexpr std::array kMemories = {Memory::kSerialPlenty, Memory::kPlenty, Memory::kTightGpu,
                                  Memory::kTightCpu, Memory::kMinimum};
constexpr std::array kChunks = {ChunkSize::kGrain, ChunkSize::kThreeGrains, ChunkSize::kAuto};
constexpr std::array kRecomputes = {Recompute::kEveryLayer, Recompute::kAuto, Recompute::kNone};
constexpr std::array kSharings = {Sharing::kSeparate, Sharing::kUnified};
constexpr std::array kStoreKinds = {cpu_adam::Stores::kCached, cpu_adam::Stores::kStreaming};
constexpr std::array kOrders = {Wiring::Order::kGlobal, Wiring::Order::kBySegment,
                                Wiring::Order::kDelayed};
constexpr std::array kUpdates = {schedule::Update::kEnd, schedule::Update::kArriving};
constexpr std::array kEngines = {nvme::Engine::kAuto, nvme::Engine::kThreads, nvme::Engine::kLibaio,
                                 nvme::Engine::kIoUring};

std::vector<Homes> all_homes() {
  std::vector<Homes> all;
  for (const auto p : {ParamHome::kNone, ParamHome::kCpu, ParamHome::kNvme}) {
    for (const auto g : {GradientHome::kNone, GradientHome::kCpu}) {
      for (const auto s : {OptimizerHome::kNone, OptimizerHome::kCpu, OptimizerHome::kNvme}) {
        for (const auto a : {ActivationHome::kNone, ActivationHome::kCpu, ActivationHome::kNvme}) {
          all.push_back({p, g, s, a});
        }
      }
    }
  }
  return all;
}

bool has_streaming_stores(cpu_adam::Isa isa) {
  return isa != cpu_adam::Isa::kScalar && isa != cpu_adam::Isa::kNeon;
}

CrownRow row_of(const Row& row, const std::vector<Homes>& homes,
                const std::vector<cpu_adam::Isa>& isas) {
  const Wiring wiring{row[kTied] != 0, kComputes[row[kCompute]], row[kAccumulates] != 0,
                      kOrders[row[kOrder]]};
  return {.wiring = wiring,
          .homes = homes[row[kHomes]],
          .memory = kMemories[row[kMemory]],
          .chunk = kChunks[row[kChunk]],
          .recompute = kRecomputes[row[kRecompute]],
          .sharing = kSharings[row[kSharing]],
          .kernel_threads = row[kThreads] != 0 ? 2U : 1U,
          .stores = kStoreKinds[row[kStores]],
          .isa = isas[row[kIsa]],
          .update = wiring.delayed() ? schedule::Update::kDelayed : kUpdates[row[kUpdate]],
          .engine = kEngines[row[kEngine]]};
}

/// Rows with a value that no other kept row has, and so many of each wiring.
std::vector<Row> reduced(const std::vector<Row>& rows, const std::vector<Homes>& homes,
                         std::size_t of_each_wiring) {
  std::vector<Row> kept;
  std::set<std::pair<std::size_t, std::size_t>> seen;
  std::map<std::array<std::size_t, 4>, std::size_t> of_wiring;
  for (const Row& row : rows) {
    std::size_t fresh = 0;
    const auto show = [&](std::size_t what, std::size_t value) {
      if (seen.insert({what, value}).second) ++fresh;
    };
    for (std::size_t axis = 0; axis < kAxes; ++axis) {
      if (axis != kHomes) show(axis, row[axis]);
    }
    const Homes& h = homes[row[kHomes]];
    show(kAxes, static_cast<std::size_t>(h.param));
    show(kAxes + 1, static_cast<std::size_t>(h.gradient));
    show(kAxes + 2, static_cast<std::size_t>(h.state));
    show(kAxes + 3, static_cast<std::size_t>(h.activation));
    std::size_t& others = of_wiring[{row[kTied], row[kCompute], row[kAccumulates], row[kOrder]}];
    if (fresh == 0 && others >= of_each_wiring) continue;
    ++others;
    kept.push_back(row);
  }
  return kept;
}

bool has(nvme::Engine engine) {
  try {
    nvme::Options options;
    options.engine = engine;
    nvme::make_queue(options, nvme::Caching::kDirect);
    return true;
  } catch (const Error& e) {
    if (e.code != Errc::kEnv) throw;
    std::printf("rows of an engine that is not here use threads: %s\n", e.what());
    return false;
  }
}

plan::Plan plan_of(const Job& job) {
  return make_session(job).plan();
}

/// The largest slot of weights that the device has.
Bytes largest_weights(const schedule::Catalog& catalog) {
  Bytes largest = 0;
  for (std::size_t i = 0; i < catalog.pools.size(); ++i) {
    const prefetch::Pool& pool = catalog.pools[i];
    if (pool.tier == Tier::kGpu && catalog.tags[i] == prefetch::MemoryTag::kParam) {
      largest = std::max(largest, pool.slot);
    }
  }
  return largest;
}

void limit(Job& job, Memory memory) {
  if (memory == Memory::kSerialPlenty || memory == Memory::kPlenty) return;
  const plan::Plan plan = plan_of(job);
  const auto minimum = [&](Tier tier) { return plan.minimum[index(tier)]; };
  switch (memory) {
    case Memory::kTightGpu:
      limit_gpu(job, minimum(Tier::kGpu) + 2 * largest_weights(plan.catalog));
      break;
    case Memory::kTightCpu: {
      const Bytes wanted = plan.planned[index(Tier::kCpu)];
      // At the end of a step nothing but more slots hides that state is read; an update with a step
      // beside it may be hidden in the fewest, other homes may want none. Of a device's rows, one
      // in chunks as large as segments has no shorter a step with more.
      const bool alone = job.optimizer.update == schedule::Update::kEnd;
      const bool more = gpu::device().unified || job.homes.sub_group_size;
      if (job.homes.offload_optimizer == OptimizerHome::kNvme && alone && more) {
        EXPECT_GT(wanted, minimum(Tier::kCpu)) << "no limit would bind";
      }
      job.tiers.cpu.limit = minimum(Tier::kCpu) + (wanted - minimum(Tier::kCpu)) / 2;
      break;
    }
    case Memory::kMinimum:
      // In less memory fewer micro-batches may go together, which need less again.
      for (plan::Plan least = plan;;) {
        const prefetch::BytesByTier all = least.minimum;
        limit_gpu(job, all[index(Tier::kGpu)]);
        job.tiers.cpu.limit = all[index(Tier::kCpu)];
        job.tiers.nvme.limit = all[index(Tier::kNvme)];
        least = plan_of(job);
        if (least.minimum == all) break;
      }
      break;
    default:
      break;
  }
}

}  // namespace

void limit_gpu(Job& job, Bytes bytes) {
  job.tiers.gpu.limit = bytes;
  job.hooks.limits = [bytes](prefetch::BytesByTier& tiers) { tiers[index(Tier::kGpu)] = bytes; };
}

bool Homes::on_nvme() const {
  return param == ParamHome::kNvme || state == OptimizerHome::kNvme ||
         activation == ActivationHome::kNvme;
}

std::string CrownRow::name() const {
  return fmt::format(
      "tied {} {} accumulates {} order {}, param {} gradient {} state {} activation {}, memory {} "
      "chunk {} recompute {} sharing {} threads {} stores {} isa {} update {} engine {}",
      wiring.tied, name_of(wiring.compute), wiring.accumulates, static_cast<int>(wiring.order),
      static_cast<int>(homes.param), static_cast<int>(homes.gradient),
      static_cast<int>(homes.state), static_cast<int>(homes.activation), static_cast<int>(memory),
      static_cast<int>(chunk), static_cast<int>(recompute), static_cast<int>(sharing),
      kernel_threads, static_cast<int>(stores), cpu_adam::name_of(isa), schedule::name_of(update),
      static_cast<int>(engine));
}

std::vector<CrownRow> crown_rows(std::size_t least) {
  const std::vector<Homes> homes = all_homes();
  const std::vector<cpu_adam::Isa> isas = cpu_adam::available_isas();
  std::vector<std::size_t> values(kAxes, 2);
  values[kCompute] = kComputes.size();
  values[kOrder] = kOrders.size();
  values[kHomes] = homes.size();
  values[kMemory] = kMemories.size();
  values[kChunk] = kChunks.size();
  values[kRecompute] = kRecomputes.size();
  if (!gpu::device().unified) values[kSharing] = 1;  // its memory is its own
  values[kIsa] = isas.size();
  values[kEngine] = kEngines.size();
  // What a row could not show: an engine without a drive, kept layers whose weights are fetched,
  // streaming stores that an instruction set lacks, updates that may not arrive.
  const auto fits = [&](const Choice& a, const Choice& b) {
    if (a.axis == kHomes && b.axis == kEngine) {
      return homes[a.value].on_nvme() != (kEngines[b.value] == nvme::Engine::kAuto);
    }
    if (a.axis == kRecompute && kRecomputes[a.value] != Recompute::kEveryLayer) {
      if (b.axis == kHomes) return homes[b.value].param == ParamHome::kNone;
    }
    if (a.axis == kOrder && kOrders[a.value] != Wiring::Order::kBySegment) {
      if (b.axis == kUpdate) return kUpdates[b.value] == schedule::Update::kEnd;
    }
    if (a.axis == kIsa && b.axis == kStores) {
      return kStoreKinds[b.value] == cpu_adam::Stores::kCached ||
             has_streaming_stores(isas[a.value]);
    }
    return true;
  };
  static const std::vector<Row> cover = pairwise_cover(values, fits);  // a third of a second
  std::vector<Row> rows = cover;
  if (test::extent() == test::Extent::kReduced) rows = reduced(rows, homes, 3);
  if (test::extent() == test::Extent::kLeast) rows = reduced(rows, homes, least);
  std::set<nvme::Engine> missing;
  for (const nvme::Engine engine : kEngines) {
    if (!has(engine)) missing.insert(engine);
  }
  std::vector<CrownRow> all;
  for (const Row& row : rows) {
    CrownRow made = row_of(row, homes, isas);
    if (missing.contains(made.engine)) made.engine = nvme::Engine::kThreads;
    // Where tiers share memory, weights in host memory are resident: these layers are kept too.
    if (made.homes.param == ParamHome::kCpu && made.unified()) made.recompute = Recompute::kAuto;
    all.push_back(made);
  }
  return all;
}

std::vector<CrownRow> crown_rows_of(const Wiring& wiring, std::size_t least) {
  std::vector<CrownRow> rows = crown_rows(least);
  std::erase_if(rows, [&](const CrownRow& row) { return row.wiring != wiring; });
  return rows;
}

std::string name_of(const Wiring& w) {
  return std::string(w.tied ? "tied" : "untied") + "_" + std::string(sluice::name_of(w.compute)) +
         (w.accumulates ? "_accumulated" : "") + (w.clips_segments() ? "_by_segment" : "") +
         (w.delayed() ? "_delayed" : "");
}

Job job_of(const TempFolder& folder, const Wiring& wiring) {
  shape::Decoder decoder = wiring.tied ? tiny_gpt() : tiny_llama();
  decoder.vocab = 601;  // x 42: seven grains
  Job job = tiny_job(folder, decoder);
  job.compute = wiring.compute;
  if (wiring.saves_weights()) job.final_dtype = wiring.compute;
  job.compute_threads = wiring.compute_threads();
  // Doubled after three steps, halved by the spoiled one.
  if (wiring.compute == DType::kF16) {
    job.loss_scale = {.fixed = std::nullopt, .initial_power = 10, .window = 3};
  }
  if (wiring.clips_segments()) job.train.clip_scope = ClipScope::kSegment;
  if (wiring.by_segment()) {
    job.train.on_nonfinite = OnNonFinite::kStop;
    if (wiring.compute == DType::kF16) job.loss_scale.fixed = 1024;
    job.optimizer.update = schedule::Update::kEnd;
  }
  job.train.gradient_accumulation_steps = wiring.accumulates ? 3 : 1;
  job.train.train_batch_size = *job.train.gradient_accumulation_steps * 2;
  job.data.valid = job.data.train;
  job.eval = {.every = 2, .batches = 2};
  if (wiring.delayed()) {
    job.optimizer.update = schedule::Update::kDelayed;
    job.optimizer.delayed_update_start = std::int64_t{1};
    job.eval.drain = wiring.drains();
  }
  return job;
}

Job job_of(const TempFolder& folder, const CrownRow& row) {
  Job job = job_of(folder, row.wiring);
  job.homes = {.offload_param = row.homes.param,
               .offload_gradient = row.homes.gradient,
               .offload_optimizer = row.homes.state,
               .offload_activation = row.homes.activation,
               .recompute = row.recompute};
  if (row.chunk == ChunkSize::kGrain) job.homes.sub_group_size = 48_KiB;
  if (row.chunk == ChunkSize::kThreeGrains) job.homes.sub_group_size = 3 * 48_KiB;
  job.tiers.gpu.unified = row.unified() ? memory::Unified::kAuto : memory::Unified::kFalse;
  job.execution = row.memory == Memory::kSerialPlenty ? Execution::kSerial : Execution::kOverlapped;
  job.optimizer.update = row.update;
  job.cpu_adam = {.threads = row.kernel_threads, .isa = row.isa, .stores = row.stores};
  job.aio.engine = row.engine;
  job.aio.block_size = 16_KiB;  // a grain of fp32: most requests are cut
  job.aio.queue_depth = 4;
  limit(job, row.memory);
  return job;
}

Disturbance disturbance_of(const Wiring& wiring, std::uint64_t delay_seed) {
  Disturbance disturbance{.spoiled_steps = {kSpoiledStep}, .delay_seed = delay_seed};
  if (wiring.by_segment()) disturbance.spoiled_steps.clear();
  return disturbance;
}

double clip_threshold(const TempFolder& folder, const Wiring& wiring) {
  Job job = job_of(folder, wiring);
  job.train.gradient_clipping = wiring.clips_segments() ? std::optional(1e30) : std::nullopt;
  const Fingerprint print = run(job, disturbance_of(wiring));
  std::vector<double> norms = wiring.clips_segments() ? print.largest_norms : print.norms;
  std::erase_if(norms, [](double n) { return !(n < 1e300); });
  std::sort(norms.begin(), norms.end());
  return (norms[norms.size() - 2] + norms.back()) / 2;
}

}  // namespace sluice::train
