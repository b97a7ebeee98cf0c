/// Tiny models on every placement, and a way to ask a program what it says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/schedule/catalog.h"
#include "engine/schedule/ops.h"
#include "engine/schedule/programs.h"
#include "engine/schedule/setup.h"
#include "engine/shape/family.h"
#include "engine/shape/model.h"

namespace sluice::testing {

enum class TinyModel { kTiedGpt, kLlama };

/// Several chunks per layer, the last one shorter.
inline shape::Model tiny_model(TinyModel which) {
  const bool gpt = which == TinyModel::kTiedGpt;
  shape::Decoder d = shape::find_family(gpt ? "gpt2" : "llama").base;
  d.vocab = 300;
  d.hidden = 64;
  d.layers = 3;
  d.heads = 4;
  d.kv_heads = gpt ? 4 : 2;
  d.head_dim = 16;
  d.intermediate = 128;
  d.max_positions = 32;
  d.tied_embeddings = gpt;
  return shape::make_model(d);
}

struct Placement {
  schedule::ParamHome param = schedule::ParamHome::kCpu;
  schedule::GradientHome gradient = schedule::GradientHome::kCpu;
  schedule::OptimizerHome state = schedule::OptimizerHome::kNvme;
  schedule::ActivationHome activation = schedule::ActivationHome::kNone;
  std::int64_t kept_layers = 0;  ///< only where the weights are resident
  bool keeps_logits = false;
  schedule::Sharing sharing = schedule::Sharing::kSeparate;
  schedule::Update update = schedule::Update::kEnd;
  bool clips_segments = false;
  bool one_by_one = false;  ///< micro-batches, where they might go together
  std::int64_t micro_batches = 3;
  TinyModel model = TinyModel::kTiedGpt;

  bool separate() const { return sharing == schedule::Sharing::kSeparate; }
  bool streams() const {
    return param == schedule::ParamHome::kNvme ||
           (separate() && param == schedule::ParamHome::kCpu);
  }
  bool params_on_nvme() const { return param == schedule::ParamHome::kNvme; }
  bool activations_on_nvme() const { return activation == schedule::ActivationHome::kNvme; }
  bool gradient_on_device() const { return gradient == schedule::GradientHome::kNone; }
  bool state_on_device() const { return state == schedule::OptimizerHome::kNone; }
  bool arrives() const { return update == schedule::Update::kArriving; }
  bool delays() const { return update == schedule::Update::kDelayed; }
  /// In bf16, whose weights the host has at hand: a drive has no upper halves of masters.
  bool splits() const { return on_nvme() && host_has_weights(); }
  bool host_has_weights() const {
    return param == schedule::ParamHome::kCpu ||
           (param == schedule::ParamHome::kNone && !separate());
  }
  bool on_nvme() const { return state == schedule::OptimizerHome::kNvme; }

  std::string name() const {
    static constexpr std::array kHomes = {"None", "Cpu", "Nvme"};
    std::string text = "Param";
    text += kHomes[static_cast<std::size_t>(param)];
    text += gradient_on_device() ? "GradientNone" : "GradientCpu";
    text += "State";
    text += kHomes[static_cast<std::size_t>(state)];
    text += "Activation";
    text += kHomes[static_cast<std::size_t>(activation)];
    if (kept_layers > 0) text += "Kept";
    text += separate() ? "Separate" : "Unified";
    if (arrives()) text += "Arriving";
    if (delays()) text += "Delayed";
    if (one_by_one) text += "OneByOne";
    if (clips_segments) text += "BySegment";
    text += micro_batches == 1 ? "One" : "Three";
    return text + (model == TinyModel::kTiedGpt ? "TiedGpt" : "Llama");
  }
  friend std::ostream& operator<<(std::ostream& out, const Placement& p) { return out << p.name(); }
};

inline std::vector<Placement> all_placements() {
  using schedule::ActivationHome;
  using schedule::GradientHome;
  using schedule::OptimizerHome;
  using schedule::ParamHome;
  std::vector<Placement> all{{}};
  // Every placement in `all`, with each of these values.
  const auto vary = [&](auto member, const auto&... values) {
    std::vector<Placement> longer;
    for (const Placement& p : all) {
      const auto with = [&](auto value) {
        longer.push_back(p);
        longer.back().*member = value;
      };
      (with(values), ...);
    }
    all = longer;
  };
  vary(&Placement::param, ParamHome::kNone, ParamHome::kCpu, ParamHome::kNvme);
  vary(&Placement::gradient, GradientHome::kNone, GradientHome::kCpu);
  vary(&Placement::state, OptimizerHome::kNone, OptimizerHome::kCpu, OptimizerHome::kNvme);
  vary(&Placement::activation, ActivationHome::kNone, ActivationHome::kCpu, ActivationHome::kNvme);
  vary(&Placement::sharing, schedule::Sharing::kSeparate, schedule::Sharing::kUnified);
  vary(&Placement::micro_batches, 1, 3);
  vary(&Placement::model, TinyModel::kTiedGpt, TinyModel::kLlama);
  vary(&Placement::kept_layers, 0, 2);
  std::erase_if(all, [](const Placement& p) {
    const bool last = p.micro_batches == 3 && p.model == TinyModel::kLlama;  // says nothing new
    return last || (p.streams() && p.kept_layers > 0);
  });
  for (std::size_t i = 1; i < all.size(); i += 3) all[i].keeps_logits = true;
  return all;
}

/// The same where each segment has a record of its own: at the end of the step, or as its gradient
/// arrives.
inline std::vector<Placement> placements_by_segment(schedule::Update update) {
  std::vector<Placement> all = all_placements();
  for (Placement& p : all) {
    p.update = update;
    p.clips_segments = true;
  }
  return all;
}

/// The same with updates one step late: each way to clip, and micro-batches together or not.
inline std::vector<Placement> delayed_placements() {
  std::vector<Placement> all = all_placements();
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].update = schedule::Update::kDelayed;
    all[i].clips_segments = i % 2 == 1;
    all[i].one_by_one = all[i].micro_batches > 1 && i / 2 % 2 == 1;
  }
  return all;
}

inline schedule::Setup setup_of(const Placement& p, DType compute = DType::kBf16) {
  schedule::Setup setup =
      schedule::make_setup(tiny_model(p.model), {.offload_param = p.param,
                                                 .offload_gradient = p.gradient,
                                                 .offload_optimizer = p.state,
                                                 .offload_activation = p.activation,
                                                 .sub_group_size = 192_KiB});
  setup.kept_layers = p.kept_layers;
  setup.keeps_logits = p.keeps_logits;
  setup.logits = p.keeps_logits ? 50'000 : 0;
  setup.sharing = p.sharing;
  setup.compute = compute;
  setup.micro_batch_size = 2;
  setup.seq_len = 16;
  setup.micro_batches = p.micro_batches;
  setup.update = p.update;
  setup.clips_segments = p.clips_segments;
  setup.begins_pending = p.delays();
  const bool together = setup.streams_params() || p.arrives() || p.delays();
  setup.sweep = together && !p.one_by_one ? setup.micro_batches : 1;
  setup.workspace = 100'000;
  return setup;
}

inline schedule::OpId head_of(const Placement& p) {
  return p.keeps_logits ? schedule::OpId::kHeadTrainKeep : schedule::OpId::kHeadTrain;
}

/// A program, and what its ops say.
class Script {
 public:
  explicit Script(std::shared_ptr<const prefetch::Program> program)
      : program_(std::move(program)) {}

  const prefetch::Program& program() const { return *program_; }
  const std::vector<prefetch::Op>& ops() const { return program_->ops(); }

  /// In program order; of one segment when it is given.
  std::vector<prefetch::Op> of(schedule::OpId id, std::optional<int> segment = {}) const {
    std::vector<prefetch::Op> found;
    for (const prefetch::Op& op : ops()) {
      if (schedule::id_of(op) != id) continue;
      if (!segment || op.where.segment == *segment) found.push_back(op);
    }
    return found;
  }
  prefetch::Op only(schedule::OpId id) const {
    const auto found = of(id);
    if (found.size() != 1) throw std::runtime_error("not one op of this kind");
    return found.front();
  }
  std::size_t count(schedule::OpId id) const { return of(id).size(); }
  std::size_t on_lane(schedule::LaneKind lane) const {
    return static_cast<std::size_t>(
        std::ranges::count(ops(), schedule::lane_of(lane), [](const auto& op) { return op.lane; }));
  }
  /// The first op that writes a buffer, or a part of it where nobody writes the whole.
  const prefetch::Op& definer(prefetch::BufferId id) const {
    const auto writer = [&](auto names) {
      return std::ranges::find_if(
          ops(), [&](const prefetch::Op& op) { return std::ranges::any_of(op.writes, names); });
    };
    auto op = writer([&](prefetch::BufferId written) { return written == id; });
    if (op == ops().end()) op = writer([&](auto part) { return program_->root(part) == id; });
    if (op == ops().end()) throw std::runtime_error("nobody writes this buffer");
    return *op;
  }
  /// The op that made what a buffer holds, also where it was copied to the host on its way.
  const prefetch::Op& maker(prefetch::BufferId id) const {
    const prefetch::Op& op = definer(id);
    const bool copied =
        schedule::row_of(schedule::id_of(op)).runner == schedule::Runner::kCopyToHost;
    return copied ? maker(buffer_of(op, schedule::Operand::kSource)) : op;
  }

 private:
  std::shared_ptr<const prefetch::Program> program_;
};

inline schedule::Setup saving_weights(schedule::Setup setup) {
  setup.saves_weights = true;
  return setup;
}

/// Everything that a run on one placement is made of. Where updates are delayed `step` is the one
/// that applies what the one before left, and the run goes on from a checkpoint with a gradient.
struct Written {
  using Program = std::shared_ptr<const prefetch::Program>;

  explicit Written(const Placement& p, DType compute = DType::kBf16)
      : setup(setup_of(p, compute)),
        catalog(schedule::make_catalog(setup)),
        init(schedule::init_program(setup, catalog)),
        step(schedule::step_program(
            setup, catalog, p.delays() ? schedule::Applies::kLast : schedule::Applies::kOwn)),
        evaluation(schedule::evaluation_program(setup, catalog, 2)),
        checkpoint(schedule::checkpoint_program(setup, catalog, schedule::Saves::kState)),
        last(schedule::final_program(setup, catalog)),
        last_of_weights(schedule::final_program(saving_weights(setup), catalog)) {
    if (!p.delays()) return;
    own_step = schedule::step_program(setup, catalog, schedule::Applies::kOwn);
    first_step = schedule::step_program(setup, catalog, schedule::Applies::kNone);
    drain = schedule::drain_program(setup, catalog);
    pending_checkpoint =
        schedule::checkpoint_program(setup, catalog, schedule::Saves::kGradientToo);
  }

  int segments() const { return static_cast<int>(setup.model->segments.size()); }
  int blocks() const { return static_cast<int>(setup.model->blocks.size()); }
  /// Segment and chunk of each, in the order of the model.
  std::vector<std::pair<int, int>> all_chunks() const {
    std::vector<std::pair<int, int>> all;
    for (int s = 0; s < segments(); ++s) {
      const auto chunks = setup.chunks[static_cast<std::size_t>(s)].size();
      for (int c = 0; c < static_cast<int>(chunks); ++c) all.emplace_back(s, c);
    }
    return all;
  }
  /// Each once, in the order of a stream: what init writes, the others may read.
  std::vector<Program> programs() const {
    if (!drain) return {init, step, evaluation, checkpoint, last, last_of_weights};
    return {init,       step,       evaluation, pending_checkpoint, drain, own_step,
            first_step, checkpoint, last,       last_of_weights};
  }
  /// A run: two steps of the usual kind, and one of each that there is besides.
  std::vector<Program> stream() const {
    if (!drain) return {init, step, evaluation, checkpoint, step, last, last_of_weights};
    return {init,       step,       evaluation, pending_checkpoint, step, drain, own_step,
            first_step, checkpoint, last,       last_of_weights};
  }

  schedule::Setup setup;
  schedule::Catalog catalog;
  Program init, step, evaluation, checkpoint, last;
  Program last_of_weights;  // in the place of `last`, where they are saved in the type of compute
  Program own_step, first_step, drain, pending_checkpoint;  // of delayed updates, else null
};

/// The pools with the slots that the serial run of every program of the stream needs, no more.
inline prefetch::Pools minimum_pools(const Written& run) {
  prefetch::Initialised initialised(*run.catalog.residents);
  prefetch::Pools pools = run.catalog.pools;
  for (const auto& program : run.programs()) {
    const auto need =
        prefetch::serial_minimum(*program, pools, schedule::make_lanes(), initialised);
    for (std::size_t i = 0; i < pools.size(); ++i) {
      pools[i].slots = std::max(pools[i].slots, need.slots[i]);
    }
  }
  return pools;
}

class EveryPlacement : public ::testing::TestWithParam<Placement> {};

inline std::string placement_name(const ::testing::TestParamInfo<Placement>& info) {
  return info.param.name();
}

}  // namespace sluice::testing
