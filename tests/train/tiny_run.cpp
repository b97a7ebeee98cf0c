#include "tests/train/tiny_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "engine/shape/family.h"
#include "engine/train/op_bytes.h"
#include "gpu/device.h"
#include "gpu/local.h"
#include "nvme/aligned.h"
#include "tests/train/elements.h"
#include "tests/train/split_bytes.h"
#include "tests/train/tested_compute.h"
#include "tests/train/tier_bytes.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using executor::OpContext;
using schedule::buffer_of;
using schedule::Operand;
using schedule::OpId;

constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325ULL;

std::uint64_t fnv1a(std::uint64_t hash, const std::byte* data, Bytes n) {
  for (Bytes i = 0; i < n; ++i) {
    hash = (hash ^ static_cast<std::uint64_t>(data[i])) * 0x100000001b3ULL;
  }
  return hash;
}

std::uint64_t hash_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  return fnv1a(kFnvBasis, reinterpret_cast<const std::byte*>(all.data()), all.size());
}

/// More ops than a tiny run has.
constexpr std::size_t kMostOps = 1 << 15;

/// Stands between the driver and the conductor: delays, poison, a spoiled gradient, hashes.
class Observer : public executor::Handler {
 public:
  /// `own`: a handler of the job's, which then is `inner`; may be null.
  Observer(std::unique_ptr<executor::Handler> own, executor::Handler& inner,
           const memory::SlotMemory& memory, const schedule::Setup& setup, const Disturbance& d,
           std::uint64_t& state)
      : own_(std::move(own)),
        inner_(inner),
        memory_(memory),
        setup_(setup),
        disturbance_(d),
        random_(d.delay_seed),
        state_(state) {}
  /// The driver is gone: nobody is at the state any more.
  ~Observer() override {
    state_ = kFnvBasis;
    if (!ended_) return;
    try {
      look_at_state();
    } catch (const Error&) {
      return;  // a drive that fails has ended the run, too
    }
    std::size_t grains = 0;
    for (const zero::Layout& layout : setup_.layouts) grains += layout.elems / kGrainElems;
    EXPECT_EQ(hashes_.size(), 3 * grains) << "state that nobody looked at";
    for (const auto& [where, h] : hashes_) {
      state_ = fnv1a(state_, reinterpret_cast<const std::byte*>(&h), sizeof h);
    }
  }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  Ticket start(const OpContext& context) override {
    delay();
    const Tag::Kind kind = Tag::unpack(context.tag).kind;
    if (kind == Tag::Kind::kInit) note_homes(context);
    if (kind == Tag::Kind::kFinal) look_at_saved(context);
    Ticket ticket = inner_.start(context);
    if (spoils(context)) {
      ticket.wait();
      std::array<std::byte, sizeof(float)> spoiled;
      const Bytes n = size_of(setup_.compute);
      set_element(setup_.compute, {spoiled.data(), n}, 0, disturbance_.spoiled_by);
      tiers_.write(address(context, buffer_of(context.op, Operand::kGradients), memory_),
                   std::span(spoiled).first(n));
    }
    delay();
    return ticket;
  }

  void freed(const prefetch::Freed& f) override {
    inner_.freed(f);
    const prefetch::Pool& pool = memory_.pools()[f.pool];
    if (!disturbance_.poisons || pool.tier == prefetch::Tier::kNvme) return;
    if (poison_.size() < pool.slot) poison_.resize(pool.slot, std::byte{0xff});
    // Of a device this waits, where freed() should be short: the slot is nobody's until it returns.
    tiers_.write(memory_.address(f.pool, f.slot), std::span(poison_).first(pool.slot));
  }

 private:
  bool spoils(const OpContext& context) const {
    const Tag tag = Tag::unpack(context.tag);
    const OpId id = schedule::id_of(context.op);
    const bool backward = id == OpId::kLayerBackward || id == OpId::kLayerBackwardKept;
    return backward && tag.kind == Tag::Kind::kStep &&
           disturbance_.spoiled_steps.contains(tag.step) && context.op.where.micro_batch == 0 &&
           context.op.where.segment == 3;
  }

  /// Where a chunk's state lives, as the program of first values has it: made there, or moved there
  /// afterwards; and its weights.
  void note_homes(const OpContext& context) {
    const OpId id = schedule::id_of(context.op);
    const auto at = [&](Operand name) {
      const prefetch::BufferId buffer = buffer_of(context.op, name);
      return std::span(address(context, buffer, memory_), context.program.info(buffer).bytes);
    };
    const std::lock_guard lock(mutex_);
    Home& home = homes_[{context.op.where.segment, context.op.where.chunk}];
    home.where = context.op.where;
    if (id == OpId::kInitState) {
      home.state = at(Operand::kState);
      home.weights = at(Operand::kFresh);
    } else if (id == OpId::kFetchState) {
      home.state = at(Operand::kTarget);
    } else if (id == OpId::kWriteState) {
      home.drive.emplace(drive_bytes(context, Operand::kTarget, memory_));
    }
  }

  /// A state that is whole where masters are saved needs no other look.
  void look_at_saved(const OpContext& context) {
    ended_ = true;
    if (schedule::id_of(context.op) != OpId::kSave || setup_.splits_masters()) return;
    const prefetch::BufferId buffer = buffer_of(context.op, Operand::kState);
    const Bytes bytes = context.program.info(buffer).bytes;
    if (bytes != bytes_of(context.op.where)) return;
    const std::lock_guard lock(mutex_);
    homes_[{context.op.where.segment, context.op.where.chunk}].seen = true;
    hash(context.op.where, std::span(address(context, buffer, memory_), bytes));
  }

  /// The others, where they live.
  void look_at_state() {
    for (const auto& [chunk, home] : homes_) {
      if (home.seen || (!home.drive && home.state.empty())) continue;  // or an op of no chunk
      std::vector<std::byte> state = home.drive ? on_drive(*home.drive) : tiers_.read(home.state);
      if (setup_.splits_masters()) {
        const std::vector<float> whole = whole_state(state, home.weights);
        hash(home.where, std::as_bytes(std::span(whole)));
      } else {
        hash(home.where, state);
      }
    }
  }

  std::vector<std::byte> on_drive(const DriveBytes& from) const {
    const nvme::AlignedBytes room = nvme::allocate_aligned(from.bytes);
    const std::span state(room.get(), from.bytes);
    memory_.store().read(from.extent, from.offset, state).wait();
    return {state.begin(), state.end()};
  }

  const zero::Chunk& chunk(const prefetch::Where& where) const {
    return setup_
        .chunks[static_cast<std::size_t>(where.segment)][static_cast<std::size_t>(where.chunk)];
  }
  Bytes bytes_of(const prefetch::Where& where) const {
    return chunk(where).elems * zero::kStateBytesPerElem;
  }

  /// Grain by grain, so that the hash does not know how the segment is cut into chunks.
  void hash(const prefetch::Where& where, std::span<const std::byte> state) {
    const zero::Chunk& of = chunk(where);
    ASSERT_EQ(state.size(), bytes_of(where));
    constexpr Bytes kGrain = kGrainElems * sizeof(float);
    const std::byte* data = state.data();
    for (int kind = 0; kind < 3; ++kind) {  // master, m, v
      for (std::uint64_t at = 0; at < of.elems; at += kGrainElems, data += kGrain) {
        hashes_[{where.segment, kind, of.first_elem + at}] = fnv1a(kFnvBasis, data, kGrain);
      }
    }
  }

  void delay() {
    if (disturbance_.delay_seed == 0) return;
    int us = 0;
    {
      const std::lock_guard lock(mutex_);
      us = std::uniform_int_distribution(-900, 300)(random_);
    }
    if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

  const std::unique_ptr<executor::Handler> own_;
  executor::Handler& inner_;
  const memory::SlotMemory& memory_;
  const schedule::Setup& setup_;
  Disturbance disturbance_;
  TierBytes tiers_;
  std::vector<std::byte> poison_;  // used under the driver's lock
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::map<std::tuple<int, int, std::uint64_t>, std::uint64_t> hashes_;
  struct Home {
    prefetch::Where where;
    std::span<std::byte> state, weights;
    std::optional<DriveBytes> drive;
    bool seen = false;
  };
  std::map<std::pair<int, int>, Home> homes_;  // by segment and chunk
  std::atomic<bool> ended_{false};
  std::uint64_t& state_;
};

}  // namespace

void write_tokens(const std::string& path, std::size_t count, std::uint16_t vocab) {
  std::mt19937_64 random(7);
  std::vector<std::uint16_t> tokens(count);
  for (auto& t : tokens) t = static_cast<std::uint16_t>(random() % vocab);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(std::uint16_t)));
}

shape::Decoder tiny_gpt() {
  shape::Decoder d = shape::find_family("gpt2").base;
  d.vocab = 211;
  d.hidden = 42;
  d.layers = 5;
  d.heads = d.kv_heads = 3;
  d.head_dim = 14;
  d.intermediate = 67;
  d.max_positions = 17;
  d.tied_embeddings = true;
  return d;
}

shape::Decoder tiny_llama() {
  shape::Decoder d = shape::find_family("llama").base;
  d.vocab = 211;
  d.hidden = 42;
  d.layers = 4;
  d.heads = 3;
  d.kv_heads = 1;
  d.head_dim = 14;
  d.intermediate = 67;
  d.max_positions = 64;
  return d;
}

Job tiny_job(const TempFolder& folder, const shape::Decoder& decoder) {
  Job job;
  job.decoder = decoder;
  job.data.train = {folder / "tokens.bin"};
  job.data.seq_len = 13;
  if (!fs::exists(folder / "tokens.bin")) {
    write_tokens(folder / "tokens.bin", 2000, static_cast<std::uint16_t>(decoder.vocab));
  }
  job.train.steps = kTinySteps;
  job.train.train_micro_batch_size_per_gpu = 2;
  job.train.gradient_accumulation_steps = 1;
  job.train.train_batch_size = 2;
  job.optimizer.lr = 1e-2;
  job.scheduler.warmup_steps = std::int64_t{2};
  job.homes.offload_param = schedule::ParamHome::kCpu;
  job.homes.offload_gradient = schedule::GradientHome::kCpu;
  job.homes.sub_group_size = 48_KiB;
  job.compute = job.final_dtype = DType::kF32;
  job.compute_threads = 1;
  job.loss_chunk = 100;
  job.tiers.gpu.limit = 1_GiB;
  job.tiers.gpu.unified = memory::Unified::kFalse;
  job.tiers.cpu.limit = 1_GiB;
  job.tiers.nvme.allow_ram_path = true;
  job.cpu_adam.threads = 1;
  job.cpu_adam.stores = cpu_adam::Stores::kCached;
  job.rates = plan::Rates{};
  job.folder = folder / "run";
  job.make_compute = tested_compute();
  return job;
}

Session make_session(const Job& job) {
  return Session(job);
}

std::int64_t Observed::count(schedule::OpId id) const {
  return std::count_if(spans.begin(), spans.end(), [id](const Span& span) {
    return span.name == static_cast<std::uint32_t>(id);
  });
}

Observed observe(Job job, const Disturbance& disturbance) {
  Observed seen;
  Fingerprint& print = seen.print;
  job.on_step = [&, also = job.on_step](const data::StepRecord& r) {
    if (also) also(r);
    seen.records.push_back(r);
    print.losses.push_back(r.loss);
    print.norms.push_back(r.gnorm);
    if (r.largest_gnorm) print.largest_norms.push_back(*r.largest_gnorm);
    if (r.valid_loss) print.valid_losses.push_back(*r.valid_loss);
    print.clipped.push_back(r.clip < 1.0);
    print.skipped.push_back(r.skipped);
    if (r.loss_scale) print.loss_scales.push_back(*r.loss_scale);
  };
  job.hooks.wrap_handler = [&, own = job.hooks.wrap_handler](executor::Handler& conductor,
                                                             const memory::SlotMemory& memory) {
    std::byte* workspace =
        memory.address(seen.plan.catalog.residents->info(seen.plan.catalog.workspace).pool, 0);
    seen.strict = !gpu::device().unified || gpu::local(workspace) != workspace;
    std::unique_ptr<executor::Handler> wrapped = own ? own(conductor, memory) : nullptr;
    executor::Handler& inner = wrapped ? *wrapped : conductor;
    return std::make_unique<Observer>(std::move(wrapped), inner, memory, seen.plan.setup,
                                      disturbance, print.state);
  };
  Trace trace(kMostOps);
  job.hooks.trace = &trace;
  std::error_code ignored;
  fs::remove_all(job.folder, ignored);
  fs::create_directories(job.folder);
  Session session = make_session(job);
  seen.plan = session.plan();
  session.run();
  seen.spans = trace.spans();
  print.weights = hash_of_file(fs::path(job.folder) / "final" / "model.safetensors");
  return seen;
}

Fingerprint run(Job job, const Disturbance& disturbance) {
  return observe(std::move(job), disturbance).print;
}

std::string said_by(const Job& job) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  run(job);
  std::string said = testing::internal::GetCapturedStdout();
  said += testing::internal::GetCapturedStderr();
  std::ranges::replace(said, '\n', ' ');
  return said;
}

}  // namespace sluice::train
