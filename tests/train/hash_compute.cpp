#include "tests/train/hash_compute.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "tests/train/elements.h"

namespace sluice::train {
namespace {

using schedule::Operand;
using schedule::OpId;

/// More than weights of these tests come to, and fp16 can hold.
constexpr float kTooLarge = 6e4F;
constexpr std::uint64_t kSeed = 0xcbf29ce484222325ULL;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::uint64_t hashed(std::uint64_t hash, OpBytes::Bytes bytes) {
  for (std::size_t at = 0; at + sizeof hash <= bytes.size(); at += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    hash = mixed(hash, word);
  }
  return hash;
}

/// In (-0.1, 0.1): finite in every dtype, small enough to be summed and squared.
float value_of(std::uint64_t hash) {
  return (static_cast<float>(hash >> 40) / static_cast<float>(1 << 24) - 0.5F) * 0.2F;
}

class HashCompute : public Compute {
 public:
  explicit HashCompute(const schedule::Setup& setup) : setup_(setup) {}

  Measured measure(gpu::Stream&, Bytes, Wanted) override {
    return {{.main = 4096, .side = 0, .spilled = 0}, {}};
  }
  std::function<void()> example(gpu::Stream&) override { return {}; }
  void set_workspace(std::span<std::byte>, Bytes) override {}
  WorkspaceUse peak() const override { return {.main = 4096, .side = 0, .spilled = 0}; }

  void run(const OpBytes& op) override {
    switch (op.id) {
      case OpId::kEmbedForward:
        return fill(op[Operand::kOutput], hashed(weights(op), op[Operand::kBatch]));
      case OpId::kLayerForwardKeep:
        fill(op[Operand::kKept], forward(op) + 1);
        [[fallthrough]];
      case OpId::kLayerForward:
        return fill(op[Operand::kOutput], forward(op));
      case OpId::kHeadTrainKeep:
        fill(op[Operand::kKept], forward(op));  // for itself
        [[fallthrough]];
      case OpId::kHeadTrain:
      case OpId::kHeadLoss: {
        const std::uint64_t hash = hashed(forward(op), op[Operand::kBatch]);
        op.values<double>(Operand::kLoss).front() =
            overflows(op) ? INFINITY : 10.0 + static_cast<double>(value_of(hash));
        // The size of a step's gradient is its batch's: clipping one step leaves the others alone.
        const float scale = std::exp2(80 * value_of(hashed(kSeed, op[Operand::kBatch])));
        if (op.id != OpId::kHeadLoss) backward(op, hash, scale * loss_scale(op));
        return;
      }
      case OpId::kLayerBackward:
      case OpId::kLayerBackwardKept:
        if (op.id == OpId::kLayerBackwardKept) check_kept(op);
        return backward(op, hashed(forward(op), op[Operand::kOutputGradient]));
      case OpId::kEmbedBackward:
        return backward(op,
                        hashed(hashed(kSeed, op[Operand::kBatch]), op[Operand::kOutputGradient]));
      default:
        throw Error(Errc::kLogic, "not a function of a block");
    }
  }

 private:
  std::uint64_t weights(const OpBytes& op) const {
    std::uint64_t hash = kSeed;
    for (const auto segment : op.all(Operand::kWeights)) hash = hashed(hash, segment);
    return hash;
  }
  std::uint64_t forward(const OpBytes& op) const {
    return hashed(weights(op), values(op[Operand::kInput]));
  }
  /// Weights so large that a real model's logits would not be finite.
  bool overflows(const OpBytes& op) const {
    for (const auto segment : op.all(Operand::kWeights)) {
      for (std::size_t i = 0; i < segment.size() / size_of(setup_.compute); ++i) {
        if (std::abs(element(setup_.compute, segment, i)) > kTooLarge) return true;
      }
    }
    return false;
  }
  static float loss_scale(const OpBytes& op) {
    return static_cast<float>(op.values<const Control>(Operand::kControl).front().loss_scale);
  }
  void backward(const OpBytes& op, std::uint64_t hash, float scale = 1) const {
    if (op.has(Operand::kInputGradient)) fill(op[Operand::kInputGradient], hash);
    const auto buffers = op.all(Operand::kGradients);
    const auto& segments = block_of(op).segments;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      std::memset(buffers[i].data(), 0, buffers[i].size());
      for (const zero::Placed& tensor :
           setup_.layouts[static_cast<std::size_t>(segments[i])].tensors) {
        const Bytes elem = size_of(setup_.compute);
        const Bytes begin = tensor.offset_elems * elem;
        write(buffers[i].subspan(begin, tensor.end() * elem - begin), mixed(hash, begin + i),
              scale);
      }
    }
  }
  const shape::Block& block_of(const OpBytes& op) const {
    for (const shape::Block& block : setup_.model->blocks) {
      if (block.segments.front() == op.where.segment) return block;
    }
    throw Error(Errc::kLogic, "no such block");
  }
  /// Of an activation, without what rounds it up to whole pages.
  OpBytes::Bytes values(OpBytes::Bytes activation) const {
    return activation.first(
        static_cast<std::size_t>(setup_.micro_batch_tokens() * setup_.model->decoder.hidden) *
        size_of(setup_.compute));
  }
  void fill(OpBytes::Bytes bytes, std::uint64_t hash) const { write(bytes, hash); }
  void write(OpBytes::Bytes bytes, std::uint64_t hash, float scale = 1) const {
    const Bytes elem = size_of(setup_.compute);
    for (std::size_t i = 0; i < bytes.size() / elem; ++i) {
      set_element(setup_.compute, bytes, i, scale * value_of(mixed(hash, i)));
    }
  }
  void check_kept(const OpBytes& op) const {
    std::vector<std::byte> expected(op[Operand::kKept].size());
    fill(expected, forward(op) + 1);
    SLUICE_CHECK(std::memcmp(expected.data(), op[Operand::kKept].data(), expected.size()) == 0,
                 kLogic, "a kept layer is not the one that its forward left");
  }

  const schedule::Setup& setup_;
};

}  // namespace

MakeCompute hash_compute() {
  return [](const schedule::Setup& setup, const Numerics&) {
    return std::make_unique<HashCompute>(setup);
  };
}

}  // namespace sluice::train
