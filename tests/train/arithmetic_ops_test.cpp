#include "engine/train/arithmetic_ops.h"

#include <gtest/gtest.h>

#include <random>
#include <span>
#include <vector>

#include "engine/train/record.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

using schedule::Operand;
using schedule::OpId;

struct Results {
  std::vector<double> norms;
  std::vector<float> state;
  std::vector<Bf16> fresh;
};

/// Of the first chunk of a tied table.
class TiedTable {
 public:
  TiedTable() : setup_(tied()) {
    for (int s = 0; s < static_cast<int>(setup_.layouts.size()); ++s) {
      routes_.push_back(schedule::gradient_route(setup_, s));
    }
  }

  std::uint64_t elems() const { return setup_.chunks.front().front().elems; }
  schedule::GradientRoute& route() { return routes_.front(); }

  /// The norms and an update of a gradient of these terms.
  Results run(const std::vector<OpBytes::Bytes>& terms) const {
    Results results{.norms = std::vector<double>(elems() / kGrainElems, -1),
                    .state = std::vector<float>(3 * elems(), 0.25F),
                    .fresh = std::vector<Bf16>(elems())};
    Record record;
    record.t = 1;
    record.lr = 0.1F;
    record.clip = 0.5F;
    const ArithmeticOps ops(setup_, routes_, options_);
    const cpu_adam::Optimizer host({.threads = 1, .stores = cpu_adam::Stores::kCached});
    for (const OpId id : {OpId::kNorm, OpId::kAdam}) {
      OpBytes op;
      op.id = id;
      op.where.segment = op.where.chunk = 0;
      for (const OpBytes::Bytes term : terms) op.bind(Operand::kGradient, term);
      op.bind(Operand::kRecord, std::as_writable_bytes(std::span(&record, 1)));
      op.bind(Operand::kNorms, std::as_writable_bytes(std::span(results.norms)));
      op.bind(Operand::kState, std::as_writable_bytes(std::span(results.state)));
      op.bind(Operand::kFresh, std::as_writable_bytes(std::span(results.fresh)));
      ops.run(op, host);
    }
    return results;
  }

 private:
  static schedule::Setup tied() {
    shape::Decoder decoder = tiny_llama();
    decoder.tied_embeddings = true;
    schedule::Setup setup = schedule::make_setup(shape::make_model(decoder), {});
    setup.compute = DType::kBf16;
    return setup;
  }

  schedule::Setup setup_;
  std::vector<schedule::GradientRoute> routes_;
  OptimizerOptions options_;
};

TEST(ArithmeticOps, TakeTheSumOfBothTermsOfAGradient) {
  TiedTable table;
  ASSERT_TRUE(table.route().apart);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<Bf16> embedding, head;
  std::vector<float> sum;
  for (std::uint64_t i = 0; i < table.elems(); ++i) {
    embedding.push_back(to_bf16(normal(random)));
    head.push_back(to_bf16(normal(random)));
    sum.push_back(to_float(embedding.back()) + to_float(head.back()));
  }
  const auto bytes = [](auto& values) { return std::as_writable_bytes(std::span(values)); };
  const Results both = table.run({bytes(embedding), bytes(head)});
  table.route().dtype = DType::kF32;
  const Results one = table.run({bytes(sum)});
  EXPECT_EQ(both.norms, one.norms);
  EXPECT_EQ(both.state, one.state);
  for (std::uint64_t i = 0; i < table.elems(); ++i) {
    ASSERT_EQ(both.fresh[i].bits, one.fresh[i].bits) << i;
  }
  EXPECT_THROW(table.run({bytes(sum), bytes(sum), bytes(sum)}), Error);
}

}  // namespace
}  // namespace sluice::train
