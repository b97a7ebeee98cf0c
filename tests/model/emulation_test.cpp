// The bodies of the device's kernels, run one thread after the other: as exact as their roundings
// allow, or with the bits of the host's functions.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

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

/// Roundings on top of each other in the sum of a row: of a thread's elements, in whole packs, and
/// of two folds of 32 lanes.
double depth_on_device(std::int64_t width) {
  return std::ceil(static_cast<double>(width) / (width <= 1024 ? 32 : 256)) + 8 + 2 * 5;
}

class Emulated : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  const at::ScalarType dtype = GetParam();

  /// `of`: the magnitudes of what it is made of, each times its roundings.
  void expect_off_by(const at::Tensor& of, const at::Tensor& got, const at::Tensor& exact) {
    EXPECT_EQ(got.scalar_type(), dtype);
    expect_within(got, exact, 1, of);
  }
};

// Narrow and wide, of whole packs and not: a warp and a block to a row, 16 bytes and one element at
// a time. The gradient may be in fp32 beside narrower numbers.
TEST_P(Emulated, NormsAreExactToTheirRoundings) {
  constexpr std::int64_t kRows = 77;  // three parts of a sum over rows, of 32 at the most
  for (const std::int64_t width : {40, 63, 1024, 2056, 3001}) {
    for (const bool has_bias : {false, true}) {
      for (const at::ScalarType dy_dtype : {dtype, at::kFloat}) {
        SCOPED_TRACE(testing::Message() << width << (has_bias ? ", a bias, " : ", ") << dy_dtype);
        NormCase c;
        c.x = random({kRows, width}, dtype, 1) + 0.5, c.gain = random({width}, dtype, 2);
        c.dy = random({kRows, width}, dy_dtype, 3);
        if (has_bias) c.bias = random({width}, dtype, 4), c.plus = random({kRows, width}, dtype, 5);
        const auto like = [&](const at::Tensor& t) { return poisoned(t.sizes(), dtype); };
        const NormGradients to{like(c.gain), has_bias ? like(c.bias) : c.bias, like(c.x)};
        const Normed normed = fused::norm_rows(kLaunch, c.x, c.gain, c.bias, 1e-5);
        fused::norm_rows_backward(kLaunch, c.x, normed, c.gain, c.dy, c.plus, to);
        std::vector<at::Tensor> all{normed.y_NH, to.out_dx_NH, to.out_dgain_H};
        if (has_bias) all.push_back(to.out_dbias_H);
        for (const at::Tensor& t : all) EXPECT_EQ(t.scalar_type(), dtype);
        expect_norm(all, c, {.row = depth_on_device(width), .column = 32 + 3});
      }
    }
  }
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
    expect_within(host.cos_BS1P, cosine, 3, cosine);
    expect_within(host.sin_BS1P, sine, 3, sine);
    for (const at::Tensor& f : {frequencies, of_tokens}) {
      const Rotary turns = fused::turns_of(kLaunch, positions, f, 0.75);
      expect_within(turns.cos_BS1P, cosine, 3, cosine);
      expect_within(turns.sin_BS1P, sine, 3, sine);
    }
  }
}

/// An activation and its slope, and how far units of fp32 may take each.
struct Curve {
  at::Tensor value, slope, of_value, of_slope;
};

// 1 / (1 + exp(-x)): exp is off by less than a place, which is two roundings, and there are two.
Curve silu_of(const at::Tensor& x) {
  const at::Tensor s = x.sigmoid(), other = (-x).sigmoid(), inner = (1 + x * other).abs();
  const at::Tensor of_s = s * (2 * other + 2);
  return {x * s, s * (1 + x * other), x.abs() * (of_s + s),
          of_s * inner + s * (x.abs() * (of_s + 2 * other) + 2 * inner)};
}

// (1 + erf(z)) / 2: z was rounded twice, erf is off by less than a place. The bell's exponent was
// rounded once, exp is off by less than a place, and three roundings more go with it.
Curve gelu_of(const at::Tensor& x) {
  const at::Tensor z = x / std::sqrt(2.0), half = z.square(), bell = (-half).exp();
  const at::Tensor below = (-z).erfc() / 2, along = x * bell / std::sqrt(2 * M_PI);
  const at::Tensor of_below = 2 * z.abs() * bell / std::sqrt(M_PI) + z.erf().abs() + below;
  const at::Tensor slope = below + along;
  return {x * below, slope, x.abs() * (of_below + below),
          of_below + along.abs() * (half + 5) + slope.abs()};
}

// (1 + tanh(v)) / 2: v and its slope are off by seven roundings, tanh by less than two places.
Curve gelu_tanh_of(const at::Tensor& x) {
  const double scale = std::sqrt(2 / M_PI), cube = 0.044715;
  const at::Tensor v = scale * (x + cube * x.pow(3)), t = v.tanh(), rest = 1 - t.square();
  const at::Tensor below = (2 * v).sigmoid(), dv = scale * (1 + 3 * cube * x.square());
  const at::Tensor of_t = 7 * v.abs() * rest + 4 * t.abs(), of_below = of_t / 2 + below;
  const at::Tensor of_rest = 2 * t.abs() * of_t + t.square() + rest;
  const at::Tensor slope = below + x / 2 * rest * dv;
  return {x * below, slope, x.abs() * (of_below + below),
          of_below + x.abs() / 2 * dv * (of_rest + 9 * rest) + slope.abs()};
}

TEST_P(Emulated, ActivationsAreExactToTheirRoundings) {
  using shape::Activation;
  const std::pair<Activation, Curve (*)(const at::Tensor&)> all[] = {
      {Activation::kSilu, silu_of},
      {Activation::kGelu, gelu_of},
      {Activation::kGeluTanh, gelu_tanh_of}};
  for (const auto& [activation, curve_of] : all) {
    for (const std::int64_t width : {64, 33}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(activation) << ", " << width);
      const at::Tensor gate = random({7, width}, dtype, 1) * 2, up = random({7, width}, dtype, 2);
      const at::Tensor dy = random({7, width}, dtype, 3);
      const at::Tensor u = up.to(at::kDouble), d = dy.to(at::kDouble);

      const Curve c = curve_of(gate.to(at::kDouble));
      const MlpInputs by = fused::activate_backward(kLaunch, activation, {gate, up}, dy.clone());
      expect_off_by(u * (c.of_value + c.value.abs()),
                    fused::activate(kLaunch, activation, {gate, up}), c.value * u);
      expect_off_by(d * u * (c.of_slope + 2 * c.slope.abs()), by.gate_NI, d * u * c.slope);
      expect_off_by(d * (c.of_value + c.value.abs()), by.up_NI, d * c.value);

      const Curve plain = curve_of(u);
      const MlpInputs alone = fused::activate_backward(kLaunch, activation, {{}, up}, dy.clone());
      EXPECT_FALSE(alone.gate_NI.defined());
      expect_off_by(plain.of_value, fused::activate(kLaunch, activation, {{}, up}), plain.value);
      expect_off_by(d * (plain.of_slope + plain.slope.abs()), alone.up_NI, d * plain.slope);
    }
  }
}

TEST_P(Emulated, RowsAreSummed) {
  for (const std::int64_t rows : {1, 31, 33, 5000}) {
    const at::Tensor t = random({rows, 37}, dtype, 1), out = poisoned({37}, dtype);
    fused::sum_rows(kLaunch, t, out);
    const at::Tensor exact = t.to(at::kDouble);
    // Parts of 32 rows, and their number.
    const double roundings = 32 + std::ceil(static_cast<double>(rows) / 32);
    expect_off_by(exact.abs().sum(0) * roundings, out, exact.sum(0));
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

// Columns in parts, the last one shorter; more than a block's worth of packs in one part. An
// exponent is off by 1 unit of itself, all that move a sum by no more than the range of logits, and
// exp by 2. A sum moves with each pack of a thread, with the thread and with the part.
TEST_P(Emulated, CrossEntropyIsExactToItsRoundings) {
  constexpr std::int64_t kTokens = 19, kVocab = 2503;
  const at::Tensor logits = random({kTokens, kVocab}, dtype, 1) * 3;
  at::Tensor targets = random_tokens({1, kTokens}, kVocab, 2);
  targets[0][4] = -100;
  const at::Tensor targets_N1 = targets.view({-1, 1});
  const at::Tensor x = logits.to(at::kDouble), index = targets_N1.clamp_min(0);
  const at::Tensor there = targets_N1.ge(0).to(at::kDouble);
  const at::Tensor losses = (x.logsumexp({1}, /*keepdim=*/true) - x.gather(1, index)) * there;
  const at::Tensor share = x.softmax(1) * there * 0.25;
  const at::Tensor one = at::zeros_like(x).scatter_(1, index, 0.25 * there);
  const double range = (x.max() - x.min()).item<double>();

  for (const std::int64_t chunk : {40, 97, 2048, 2503}) {
    SCOPED_TRACE(chunk);
    const auto fp32 = [&](double value) { return at::full({kTokens, 1}, value, at::kFloat); };
    const at::Tensor max = fp32(-INFINITY), sum = fp32(0), target_logit = fp32(0);
    const fused::SoftmaxState state{targets_N1, max, sum, target_logit};
    const auto for_columns = [&](auto body) {
      for_pieces(kVocab, chunk, [&](Columns columns) {
        body(columns, columns.of(logits, 1).clone(at::MemoryFormat::Contiguous));
      });
    };
    for_columns([&](Columns columns, const at::Tensor& part) {
      fused::see(kLaunch, state, columns, part);
    });
    const at::Tensor loss = unknown_number(), dlogits = poisoned({kTokens, kVocab}, dtype);
    fused::write_loss_sum(kLaunch, state, loss);
    for_columns([&](Columns columns, const at::Tensor& part) {
      columns.of(dlogits, 1).copy_(fused::gradient(kLaunch, state, columns, part, number(0.25)));
    });
    const auto parts = static_cast<double>(kVocab / chunk + 1);
    const double of_sum = range + 2 + 4 * depth_on_device(chunk) + 3 + 4 * parts;
    // log is off by a place of its own, and two sums of it are rounded.
    const double most = range + std::log(kVocab);
    EXPECT_NEAR(loss.item<double>(), losses.sum().item<double>(),
                kTokens * (of_sum + 4 * most) * unit(at::kFloat));
    expect_off_by((of_sum + range + 5) * (share + one), dlogits, share - one);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Emulated, ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return at::toString(info.param); });

}  // namespace
}  // namespace sluice::model
