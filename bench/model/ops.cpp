/// How long the ops of a model take, and the work on rows in them alone: in turn, best and median.
///
///   ops [FAMILY [TOKENS [DTYPE [THREADS [ROUNDS]]]]]    gpt2 512 bf16, all cores, 15
///
/// gpt2 has the shape of GPT-2's 124M, llama one of 220M; rows of 256 tokens; dtypes bf16, fp32.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/cores.h"
#include "engine/base/median.h"
#include "engine/model/blocks.h"
#include "engine/model/norm.h"
#include "engine/model/rotary.h"
#include "engine/model/softmax.h"
#include "engine/shape/family.h"
#include "engine/shape/kept.h"
#include "engine/tensor/allocator.h"
#include "engine/tensor/process.h"
#include "engine/tensor/view.h"
#include "engine/tensor/workspace.h"

namespace sluice {
namespace {

constexpr std::int64_t kSeq = 256, kLossChunk = 8192;

shape::Decoder decoder_of(const std::string& family) {
  shape::Decoder d = shape::find_family(family).base;
  const bool gpt2 = family == "gpt2";
  d.vocab = gpt2 ? 50257 : 32000;
  d.hidden = gpt2 ? 768 : 1024;
  d.layers = 12;
  d.heads = d.kv_heads = d.hidden / 64;
  d.head_dim = 64;
  d.intermediate = gpt2 ? 3072 : 2816;
  d.max_positions = 1024;
  d.tied_embeddings = gpt2;
  return d;
}

at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::TensorOptions(at::kFloat)).to(dtype);
}

/// The weights of a block, and their gradients.
class Params : public model::ParamSource, public model::GradSink {
 public:
  Params(const shape::Decoder& d, shape::BlockKind kind, at::ScalarType dtype) {
    const shape::Model all = shape::make_model(d);
    for (const shape::Block& block : all.blocks) {
      if (block.kind != kind || !weights_.empty()) continue;
      for (const int s : block.segments) {
        for (const auto& spec : all.segments[static_cast<std::size_t>(s)].tensors) {
          weights_[spec.role] = random(spec.shape, dtype).mul_(0.02);
          gradients_[spec.role] = random(spec.shape, dtype);
        }
      }
    }
  }
  at::Tensor weight(shape::Role role) const override { return weights_.at(role); }
  at::Tensor gradient(shape::Role role) override { return gradients_.at(role); }

 private:
  std::map<shape::Role, at::Tensor> weights_, gradients_;
};

/// What all ops work on.
struct World {
  World(const std::string& family, std::int64_t tokens, at::ScalarType type)
      : d(decoder_of(family)), n(tokens), dtype(type) {
    const DType compute = dtype == at::kFloat ? DType::kF32 : DType::kBf16;
    kept = model::kept_views(d, n, compute, room(shape::kept_of(d, n, compute).bytes));
    logits = model::kept_logits_views(d, n, kLossChunk, compute,
                                      room(shape::kept_logits_of(d, n, kLossChunk, compute).bytes));
    positions.copy_(at::arange(kSeq).expand({n / kSeq, kSeq}));
    places.positions_BS = positions;
    for (std::int64_t row = 0; row < n / kSeq; ++row)
      places.documents.all.push_back({row, 0, kSeq});
  }

  std::byte* room(Bytes bytes) {
    std::byte* begin = buffers.emplace_back(bytes + 64).data();
    return begin + (64 - reinterpret_cast<std::uintptr_t>(begin) % 64);
  }

  const shape::Decoder d;
  const std::int64_t n;
  const at::ScalarType dtype;
  std::vector<std::vector<std::byte>> buffers;
  model::KeptLayer kept;
  std::vector<at::Tensor> logits;
  Params embed{d, shape::BlockKind::kEmbed, dtype}, layer{d, shape::BlockKind::kLayer, dtype},
      head{d, shape::BlockKind::kHead, dtype};
  at::Tensor ids = at::randint(d.vocab, {n / kSeq, kSeq}, at::TensorOptions(at::kLong));
  at::Tensor positions = at::empty_like(ids);
  model::Places places;
  at::Tensor x = random({n / kSeq, kSeq, d.hidden}, dtype), y = at::empty_like(x);
  at::Tensor dy = random(x.sizes(), dtype), dx = at::empty_like(x);
  at::Tensor scale = at::full({}, 1e-3, at::TensorOptions(at::kDouble));
  at::Tensor loss = at::empty_like(scale);
};

struct Op {
  std::string name;
  std::function<void(World&)> run;
};

std::vector<Op> block_ops() {
  constexpr std::int64_t kAll = std::int64_t{1} << 30;
  return {
      {"embed", [](World& w) { embed_forward(w.d, w.embed, w.ids, w.positions, w.y); }},
      {"embed backward", [](World& w) { embed_backward(w.d, w.ids, w.positions, w.dy, w.embed); }},
      {"layer", [](World& w) { layer_forward(w.d, w.layer, w.places, w.x, kAll, w.y); }},
      {"layer, kept",
       [](World& w) { layer_forward_keep(w.d, w.layer, w.places, w.x, kAll, w.y, w.kept); }},
      {"layer backward, kept",
       [](World& w) {
         layer_backward_kept(w.d, w.layer, w.places, w.x, w.dy, w.kept, kAll, w.layer, w.dx);
       }},
      {"layer backward",
       [](World& w) { layer_backward(w.d, w.layer, w.places, w.x, w.dy, kAll, w.layer, w.dx); }},
      {"head, whole",
       [](World& w) {
         head_train(w.d, w.head, w.x, w.ids, w.scale, kAll, {}, w.head, w.dx, w.loss);
       }},
      {"head, in chunks",
       [](World& w) {
         head_train(w.d, w.head, w.x, w.ids, w.scale, kLossChunk, {}, w.head, w.dx, w.loss);
       }},
      {"head, in kept chunks",
       [](World& w) {
         head_train(w.d, w.head, w.x, w.ids, w.scale, kLossChunk, w.logits, w.head, w.dx, w.loss);
       }},
      {"head, loss alone",
       [](World& w) { head_loss(w.d, w.head, w.x, w.ids, kLossChunk, w.loss); }},
  };
}

at::Tensor rows(const World& w, const at::Tensor& t) {
  return t.view({-1, w.d.hidden});
}

/// The input of what is measured is made outside of it.
std::vector<Op> row_ops(const World& w) {
  const at::Tensor logits = random({w.n, w.d.vocab}, w.dtype);
  const at::Tensor wide = random({w.n, w.d.intermediate}, w.dtype);
  const at::Tensor gate = w.d.mlp == shape::Mlp::kGated ? wide.clone() : at::Tensor();
  const at::Tensor heads = w.x.view({w.n / kSeq, kSeq, w.d.heads, w.d.head_dim});
  const model::Normed normed = model::forward(model::mlp_norm(w.d), w.layer, rows(w, w.x));
  std::vector<Op> ops{
      {"norm", [](World& o) { model::forward(model::mlp_norm(o.d), o.layer, rows(o, o.x)); }},
      {"norm backward",
       [=](World& o) {
         model::backward(model::mlp_norm(o.d), o.layer, o.layer, rows(o, o.x), normed,
                         rows(o, o.dy));
       }},
      {"activation",
       [=](World& o) {
         model::activate(o.d.activation, {gate, wide});
       }},
      {"activation backward",
       [=](World& o) {
         model::activate_backward(o.d.activation, {gate, wide}, wide.clone());
       }},
      {"  of it a copy", [=](World&) { (void)wide.clone(); }},
      {"sum of rows",
       [=](World& o) { model::sum_rows(wide, at::empty({o.d.intermediate}, wide.options())); }},
      {"softmax",
       [=](World& o) {
         model::Softmax(o.ids).add({0, o.d.vocab}, logits);
       }},
      {"softmax and gradient",
       [=](World& o) {
         model::Softmax softmax(o.ids);
         const model::Columns all{0, o.d.vocab};
         softmax.add(all, logits);
         softmax.gradient(all, logits, o.scale);
       }},
  };
  if (w.d.positions == shape::Positions::kRotary) {
    ops.push_back({"rotary", [=](World& o) {
                     const model::Rotary rotary = model::make_rotary(o.d, o.places);
                     model::rotate(heads, rotary, model::Turn::kForward);
                   }});
  }
  return ops;
}

double ms_of(const Op& op, World& world, tensor::Workspace& workspace) {
  tensor::OpScope scope(workspace, op.name);
  const auto begin = std::chrono::steady_clock::now();
  op.run(world);
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

void measure(World& world, const std::vector<Op>& ops, int rounds) {
  tensor::Workspace workspace = tensor::Workspace::measuring(16_GiB);
  std::vector<std::vector<double>> ms(ops.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const double took = ms_of(ops[i], world, workspace);
      if (round >= 0) ms[i].push_back(took);
    }
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    fmt::print("{:22} best {:9.3f} ms, median {:9.3f} ms\n", ops[i].name,
               *std::min_element(ms[i].begin(), ms[i].end()), median(ms[i]));
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::tensor::require_process_environment();
  const auto argument = [&](int i, const std::string& otherwise) {
    return argc > i ? std::string(argv[i]) : otherwise;
  };
  const std::string family = argument(1, "gpt2"), dtype = argument(3, "bf16");
  const std::int64_t tokens = std::atoll(argument(2, "512").c_str());
  const auto cores = static_cast<int>(sluice::core_count());
  const int threads = argc > 4 ? std::atoi(argv[4]) : cores;
  const int rounds = std::atoi(argument(5, "15").c_str());
  const bool known =
      (family == "gpt2" || family == "llama") && (dtype == "bf16" || dtype == "fp32");
  if (!known || tokens < 1 || tokens % sluice::kSeq != 0 || threads < 1 || rounds < 1) {
    fmt::print(stderr, "usage: ops [gpt2|llama [TOKENS [bf16|fp32 [THREADS [ROUNDS]]]]]\n");
    return 2;
  }
  sluice::tensor::install_allocator();
  sluice::tensor::set_compute_threads(threads);
  fmt::print("{}, {} tokens, {}, {} threads\n", family, tokens, dtype, threads);
  sluice::World world(family, tokens, dtype == "fp32" ? at::kFloat : at::kBFloat16);
  sluice::measure(world, sluice::block_ops(), rounds);
  const auto rows = sluice::row_ops(world);
  sluice::measure(world, rows, rounds);
}
