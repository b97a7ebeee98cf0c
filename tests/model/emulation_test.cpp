// The bodies of the device's kernels, run one thread after the other, against the host's functions
// and against fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <tuple>

#include "engine/model/fused/activation.h"
#include "engine/model/fused/lookup.h"
#include "engine/model/fused/norm.h"
#include "engine/model/fused/rotary.h"
#include "engine/model/fused/softmax.h"
#include "engine/model/fused/sums.h"
#include "engine/model/row_kernels.h"
#include "harness.h"
#include "rows_oracle.h"
#include "tests/model/emulated/launch.h"

namespace sluice::model {
namespace {

constexpr emulated::Launch kLaunch;

at::Tensor fp64(const at::Tensor& t) {
  return t.to(at::kDouble).clone().requires_grad_(true);
}

std::vector<at::Tensor> gradients(const at::Tensor& of, const std::vector<at::Tensor>& by,
                                  const at::Tensor& dof) {
  return torch::autograd::grad({of}, by, {dof.to(at::kDouble)});
}

/// Of a value that is rounded once to `dtype`, after an fp32 calculation of a dozen roundings at
/// the most, with sums of so many terms in a tree: their error grows with its depth, which 16 is
/// more than.
double bound(at::ScalarType dtype) {
  return unit(dtype) + 30 * unit(at::kFloat);
}

class Emulated : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  const at::ScalarType dtype = GetParam();

  /// The host's bodies round once too (host_rows_test.cpp).
  void expect_near(const at::Tensor& emulated, const at::Tensor& host, const at::Tensor& exact) {
    EXPECT_EQ(emulated.scalar_type(), dtype);
    EXPECT_LT(relative_error(emulated, exact), bound(dtype));
    EXPECT_LT(relative_error(emulated, host), 2 * bound(dtype));
  }
};

// Narrow and wide, of whole packs and not: a warp and a block to a row, 16 bytes and one element at
// a time.
constexpr std::int64_t kWidths[] = {40, 63, 1024, 2056, 3001};

TEST_P(Emulated, NormsAreThoseOfTheHost) {
  for (const std::int64_t width : kWidths) {
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << width << (has_bias ? ", a bias" : ""));
      constexpr std::int64_t kRows = 77;
      const at::Tensor x = random({kRows, width}, dtype, 1) + 0.5;
      const at::Tensor gain = random({width}, dtype, 2), dy = random({kRows, width}, dtype, 3);
      const at::Tensor bias = has_bias ? random({width}, dtype, 4) : at::Tensor();
      const Normed normed = fused::norm_rows(kLaunch, x, gain, bias, 1e-5);
      const Normed host = norm_rows(x, gain, bias, 1e-5);
      const at::Tensor plus = has_bias ? random({kRows, width}, dtype, 5) : at::Tensor();
      const auto backward = [&](auto function) {
        std::vector<at::Tensor> all{at::empty_like(x), at::empty_like(gain),
                                    has_bias ? at::empty_like(bias) : bias};
        function(NormGradients{all[1], all[2], all[0]});
        return all;
      };
      const auto emulated = backward([&](const NormGradients& to) {
        fused::norm_rows_backward(kLaunch, x, normed, gain, dy, plus, to);
      });
      const auto on_host = backward(
          [&](const NormGradients& to) { norm_rows_backward(x, host, gain, dy, plus, to); });

      std::vector<at::Tensor> leaves{fp64(x), fp64(gain)};
      if (has_bias) leaves.push_back(fp64(bias));
      const at::Tensor middle =
          has_bias ? leaves[0] - leaves[0].mean({1}, /*keepdim=*/true) : leaves[0];
      const at::Tensor squares = middle.square().mean({1}, /*keepdim=*/true);
      at::Tensor y = middle * (squares + 1e-5).rsqrt() * leaves[1];
      if (has_bias) y = y + leaves[2];
      expect_near(normed.y_NH, host.y_NH, y);
      auto exact = gradients(y, leaves, dy);
      if (has_bias) exact[0] = exact[0] + plus;
      for (std::size_t i = 0; i < exact.size(); ++i) expect_near(emulated[i], on_host[i], exact[i]);
      EXPECT_LT(relative_error(normed.rstd_N1, host.rstd_N1), bound(at::kFloat));
    }
  }
}

TEST_P(Emulated, ANormTakesAnFp32GradientBesideANarrowerInput) {
  const at::Tensor x = random({9, 1032}, dtype, 1), gain = random({1032}, dtype, 2);
  const at::Tensor dy = random({9, 1032}, at::kFloat, 3);
  const Normed normed = fused::norm_rows(kLaunch, x, gain, {}, 1e-5);
  const NormGradients to{at::empty_like(gain), {}, at::empty_like(x)};
  const NormGradients on_host{at::empty_like(gain), {}, at::empty_like(x)};
  fused::norm_rows_backward(kLaunch, x, normed, gain, dy, {}, to);
  norm_rows_backward(x, normed, gain, dy, {}, on_host);
  EXPECT_LT(relative_error(to.out_dx_NH, on_host.out_dx_NH), 2 * bound(dtype));
  EXPECT_LT(relative_error(to.out_dgain_H, on_host.out_dgain_H), 2 * bound(dtype));
}

// Products and sums of the same fp32 numbers, in the same order: the same bits.
TEST_P(Emulated, HeadsTurnWithTheHostsBits) {
  constexpr std::int64_t kBatch = 2, kSeq = 5, kHeads = 3;
  for (const std::int64_t dim : {16, 24, 14}) {
    const at::Tensor wide = random({kBatch * kSeq, kHeads * dim + 16}, dtype, 1);
    const at::Tensor x = wide.narrow(1, 8, kHeads * dim).view({kBatch, kSeq, kHeads, dim});
    const at::Tensor positions = document_positions(kBatch, kSeq);
    const at::Tensor frequencies = random({dim / 2}, at::kFloat, 2).abs();
    const Rotary host = turns_of(positions, frequencies, 0.75);
    for (const Turn turn : {Turn::kForward, Turn::kBack}) {
      EXPECT_TRUE(same_bits(fused::rotate(kLaunch, x, host, turn), rotate(x, host, turn))) << dim;
    }
    const at::Tensor of_tokens = frequencies.expand({kBatch * kSeq, dim / 2}).contiguous();
    const at::Tensor angle = at::mul(positions.view({-1, 1}).to(at::kFloat), frequencies);
    const auto sizes = host.cos_BS1P.sizes();
    const at::Tensor cosine = (angle.to(at::kDouble).cos() * 0.75).view(sizes);
    const at::Tensor sine = (angle.to(at::kDouble).sin() * 0.75).view(sizes);
    // The function errs by less than a place, which is two roundings, and the factor rounds once.
    const double most = 3 * unit(at::kFloat);
    EXPECT_LT(relative_error(host.cos_BS1P, cosine), most);
    EXPECT_LT(relative_error(host.sin_BS1P, sine), most);
    for (const at::Tensor& f : {frequencies, of_tokens}) {
      const Rotary turns = fused::turns_of(kLaunch, positions, f, 0.75);
      EXPECT_LT(relative_error(turns.cos_BS1P, cosine), most);
      EXPECT_LT(relative_error(turns.sin_BS1P, sine), most);
    }
  }
}

at::Tensor exact_activation(shape::Activation activation, const at::Tensor& x) {
  if (activation == shape::Activation::kSilu) return x * x.sigmoid();
  if (activation == shape::Activation::kGelu) return x * 0.5 * (1 + (x / std::sqrt(2.0)).erf());
  return x * 0.5 * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))).tanh());
}

TEST_P(Emulated, ActivationsAreThoseOfTheHost) {
  using shape::Activation;
  for (const Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    for (const std::int64_t width : {64, 33}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(activation) << ", " << width);
      const at::Tensor gate = random({7, width}, dtype, 1) * 2, up = random({7, width}, dtype, 2);
      const at::Tensor dy = random({7, width}, dtype, 3);
      const at::Tensor leaf_gate = fp64(gate), leaf_up = fp64(up);

      const at::Tensor y = exact_activation(activation, leaf_gate) * leaf_up;
      expect_near(fused::activate(kLaunch, activation, {gate, up}),
                  activate(activation, {gate, up}), y);
      const MlpInputs d = fused::activate_backward(kLaunch, activation, {gate, up}, dy.clone());
      const MlpInputs host = activate_backward(activation, {gate, up}, dy.clone());
      const auto exact = gradients(y, {leaf_gate, leaf_up}, dy);
      expect_near(d.gate_NI, host.gate_NI, exact[0]);
      expect_near(d.up_NI, host.up_NI, exact[1]);

      const at::Tensor plain = exact_activation(activation, leaf_up);
      expect_near(fused::activate(kLaunch, activation, {{}, up}), activate(activation, {{}, up}),
                  plain);
      const MlpInputs dplain = fused::activate_backward(kLaunch, activation, {{}, up}, dy.clone());
      EXPECT_FALSE(dplain.gate_NI.defined());
      expect_near(dplain.up_NI, activate_backward(activation, {{}, up}, dy.clone()).up_NI,
                  gradients(plain, {leaf_up}, dy)[0]);
    }
  }
}

TEST_P(Emulated, RowsAreSummed) {
  for (const std::int64_t rows : {1, 31, 33, 5000}) {
    const at::Tensor t = random({rows, 37}, dtype, 1);
    const at::Tensor out = at::empty({37}, t.options()), host = at::empty({37}, t.options());
    fused::sum_rows(kLaunch, t, out);
    sum_rows(t, host);
    expect_near(out, host, t.to(at::kDouble).sum(0));
  }
}

// The host's, of the same numbers in fp32, rounded once.
TEST_P(Emulated, TablesAndTheirGradientsHaveTheHostsBits) {
  const auto widened = [](const at::Tensor& t) { return t.to(at::kFloat); };
  for (const std::int64_t width : {32, 30}) {
    const at::Tensor tokens = random_tokens({203}, 40, 1), places = random_tokens({203}, 9, 2);
    const at::Tensor table = random({50, width}, dtype, 3), second = random({9, width}, dtype, 4);
    const at::Tensor out = poisoned({203, width}, dtype), host = poisoned({203, width}, at::kFloat);
    for (const bool two : {false, true}) {
      const Lookup more = two ? Lookup{second, places} : Lookup{};
      fused::look_up(kLaunch, {table, tokens}, more, out);
      look_up({widened(table), tokens}, two ? Lookup{widened(second), places} : Lookup{}, host);
      EXPECT_TRUE(same_bits(out, host.to(dtype)));
    }
    const at::Tensor dtable = poisoned({50, width}, dtype);
    const at::Tensor on_host = poisoned({50, width}, at::kFloat);
    fused::look_up_backward(kLaunch, tokens, out, dtable);
    look_up_backward(tokens, widened(out), on_host);
    EXPECT_TRUE(same_bits(dtable, on_host.to(dtype)));
  }
}

// Columns in parts, the last one shorter; more than a block's worth of packs in one part.
TEST_P(Emulated, CrossEntropyIsThatOfPlainAutograd) {
  constexpr std::int64_t kTokens = 19, kVocab = 2503;
  const at::Tensor logits = random({kTokens, kVocab}, dtype, 1) * 3;
  at::Tensor targets = random_tokens({1, kTokens}, kVocab, 2);
  targets[0][4] = -100;
  const at::Tensor targets_N1 = targets.view({-1, 1});
  const at::Tensor leaf = fp64(logits);
  const at::Tensor picked = leaf.gather(1, targets_N1.clamp_min(0));
  const at::Tensor losses = (leaf.logsumexp({1}, /*keepdim=*/true) - picked) * targets_N1.ge(0);
  const at::Tensor exact = gradients(losses.sum(), {leaf}, number(0.25))[0];

  for (const std::int64_t chunk : {40, 97, 2048, 2503}) {
    SCOPED_TRACE(chunk);
    const auto fp32 = [&](double value) { return at::full({kTokens, 1}, value, at::kFloat); };
    const at::Tensor max = fp32(-INFINITY), sum = fp32(0), target_logit = fp32(0);
    const fused::SoftmaxState state{targets_N1, max, sum, target_logit};
    const auto for_columns = [&](auto body) {
      for (std::int64_t begin = 0; begin < kVocab; begin += chunk) {
        const Columns columns{begin, std::min(chunk, kVocab - begin)};
        body(columns, logits.narrow(1, begin, columns.n).clone(at::MemoryFormat::Contiguous));
      }
    };
    for_columns([&](Columns columns, const at::Tensor& part) {
      fused::see(kLaunch, state, columns, part);
    });
    const at::Tensor loss = unknown_number(), dlogits = poisoned({kTokens, kVocab}, dtype);
    fused::write_loss_sum(kLaunch, state, loss);
    for_columns([&](Columns columns, const at::Tensor& part) {
      dlogits.narrow(1, columns.begin, columns.n)
          .copy_(fused::gradient(kLaunch, state, columns, part, number(0.25)));
    });
    EXPECT_NEAR(loss.item<double>() / losses.sum().item<double>(), 1.0, bound(at::kFloat));
    // exp() of fp32 differences of up to 20 is off by 20 roundings more.
    EXPECT_LT(relative_error(dlogits, exact), bound(dtype) + 20 * unit(at::kFloat));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Emulated, ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return at::toString(info.param); });

}  // namespace
}  // namespace sluice::model
