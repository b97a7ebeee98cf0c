// The host's kernels for rows: in fp32 beside fp64, within what their roundings allow; in 16 bits
// the bits of fp32, rounded once; and the same bits on every instruction set, for every number of
// threads. Norms: host_norm_test.cpp.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/model/host/isa.h"
#include "engine/model/host/rows.h"
#include "engine/model/host/shared_out.h"
#include "engine/model/row_kernels.h"
#include "engine/model/softmax.h"
#include "every_isa.h"
#include "harness.h"
#include "rows_oracle.h"

namespace sluice::model {
namespace {

using shape::Activation;

constexpr std::int64_t kRowWidths[] = {1, 3, 63, 64, 65, 100, 768, 1000};
constexpr std::int64_t kRows = 70;
const double kUnit = unit(at::kFloat);

/// Roundings on top of each other in the sum of a row: its rounds of 64, what is left of one, and
/// the fold of 64 lanes.
double depth(std::int64_t width) {
  return static_cast<double>(width / 64) + 4 + 6;
}

/// Some of all floats, in order of their bits: NaN, infinities, and what is below normal too.
at::Tensor all_floats() {
  constexpr std::int64_t kStep = 5003;
  const at::Tensor bits = at::arange(std::int64_t{0}, std::int64_t{1} << 32, kStep, at::kLong);
  const at::Tensor ends =
      at::tensor({0.0F, -0.0F, INFINITY, -INFINITY, 88.7228F, -103.98F, 1e-45F});
  return at::cat({(bits - (std::int64_t{1} << 31)).to(at::kInt).view(at::kFloat), ends});
}

// As elementary.h says; what underflows is a multiple of 2^-149, rounded once.
TEST(HostRows, ExpIsExactOverAllFloats) {
  const at::Tensor x = all_floats();
  const at::Tensor got = x.clone(), exact = x.to(at::kDouble).exp();
  std::int64_t target = std::numeric_limits<std::int64_t>::max();
  float max = 0, sum = 1;
  rows::kernels().softmax_backward(
      rows::Elem::kF32, {got.mutable_data_ptr(), &target, &max, &sum, nullptr, 0, x.numel()}, 1.0F,
      {0, 1});
  EXPECT_TRUE(same_bits(got.isnan(), x.isnan()));
  const at::Tensor off = (got.to(at::kDouble) - exact).abs() / (exact * 2 * kUnit + 0x1p-150);
  EXPECT_LE(off.index({x.lt(88.7)}).max().item<double>(), 1.0);
  EXPECT_TRUE(got.index({x.gt(88.73)}).isinf().all().item<bool>());
}

/// An activation and its slope in fp64, and what one unit of fp32 may make of each.
struct Bent {
  at::Tensor value, slope, of_value, of_slope;
};

// With s = sigmoid(v): exp(-v) is off by 2 units and by those of v; s by so much of 1 - s, and 2.
Bent through_sigmoid(const at::Tensor& x, const at::Tensor& v, const at::Tensor& dv,
                     double units_of_v) {
  const at::Tensor s = v.sigmoid(), other = (-v).sigmoid();
  const at::Tensor of_s = s * (other * (v.abs() * units_of_v + 2) + 2);
  const at::Tensor along = (x * dv).abs();
  return {x * s, s + x * s * other * dv, x.abs() * (of_s + s),
          of_s + s + along * (other * of_s + s * (of_s + 1) + 8 * s * other)};
}

Bent exactly(Activation activation, const at::Tensor& x) {
  if (activation == Activation::kSilu) return through_sigmoid(x, x, at::ones_like(x), 0);
  const double scale = 2 * std::sqrt(2 / M_PI);
  if (activation == Activation::kGeluTanh) {
    return through_sigmoid(x, scale * (x + 0.044715 * x.pow(3)),
                           scale * (1 + 3 * 0.044715 * x.square()), 6);
  }
  // The bell is off by 2 units and by those of x^2 / 2; what lies beyond |x|, by 14 more.
  const at::Tensor beyond = (x.abs() / std::sqrt(2.0)).erfc() / 2, half = x.square() / 2;
  const at::Tensor bell = (-half).exp() / std::sqrt(2 * M_PI);
  const at::Tensor below = at::where(x < 0, beyond, 1 - beyond);
  const at::Tensor of_below = beyond * (half + 16) + (x >= 0).to(at::kDouble);
  return {x * below, below + x * bell, x.abs() * (of_below + below),
          of_below + below + x.abs() * bell * (half + 8) + 1};
}

// What vanishes is below 2^-120: so much less than any sum that it goes into.
TEST(HostRows, ActivationsAreExactOverAllFloats) {
  const at::Tensor every = all_floats(), x = every.index({every.abs() < 1e6F}).view({1, -1});
  for (const Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    SCOPED_TRACE(static_cast<int>(activation));
    const Bent bent = exactly(activation, x.to(at::kDouble));
    expect_within(activate(activation, {{}, x}), bent.value, 1, bent.of_value + 0x1p-96);
    const MlpInputs d = activate_backward(activation, {{}, x}, at::ones_like(x));
    expect_within(d.up_NI, bent.slope, 1, bent.of_slope + 0x1p-96);
    const at::Tensor y = activate(activation, {{}, every.view({1, -1})}).view({-1});
    EXPECT_TRUE(y.index({every.isnan()}).isnan().all().item<bool>());
  }
}

TEST(HostRows, ActivationsIn16BitsAndWithAGateAreThoseInFp32) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t width : kRowWidths) {
      const auto made = [&](std::uint64_t seed) { return random({5, width}, dtype, seed) * 3; };
      const auto wide = [](const at::Tensor& t) { return t.to(at::kFloat); };
      const at::Tensor gate = made(1), up = made(2), dy = made(3);
      for (const Activation activation :
           {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
        const at::Tensor bent = activate(activation, {{}, wide(gate)});
        const at::Tensor slope =
            activate_backward(activation, {{}, wide(gate)}, at::ones({5, width})).up_NI;
        EXPECT_TRUE(same_bits(activate(activation, {{}, gate}), bent.to(dtype)));
        EXPECT_TRUE(same_bits(activate(activation, {gate, up}), (bent * wide(up)).to(dtype)));
        const MlpInputs d = activate_backward(activation, {gate, up}, dy.clone());
        EXPECT_TRUE(same_bits(d.up_NI, (wide(dy) * bent).to(dtype)));
        EXPECT_TRUE(same_bits(d.gate_NI, (wide(dy) * (wide(up) * slope)).to(dtype)));
      }
    }
  }
}

// Two products and their sum, which are off by one rounding each.
TEST(HostRows, HeadsTurnWithinThreeRoundings) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t dim : {2, 6, 64, 126, 200}) {
      const at::Tensor wide = random({14, 3 * dim + 5}, dtype, 1);
      const at::Tensor x = wide.narrow(1, 2, 3 * dim).view({2, 7, 3, dim});
      const Rotary turns =
          turns_of(plain_positions(2, 7), random({dim / 2}, at::kFloat, 2).abs(), 0.75);
      const auto halves = x.to(at::kDouble).chunk(2, 3);
      const at::Tensor c = turns.cos_BS1P.to(at::kDouble), s = turns.sin_BS1P.to(at::kDouble);
      const auto most = [&](std::size_t i) {
        return halves[i].abs() * c.abs() + halves[1 - i].abs() * s.abs();
      };
      for (const Turn turn : {Turn::kForward, Turn::kBack}) {
        const at::Tensor got = rotate(x.to(at::kFloat), turns, turn);
        EXPECT_TRUE(same_bits(rotate(x, turns, turn), got.to(dtype)));
        const at::Tensor sine = turn == Turn::kForward ? s : -s;
        const at::Tensor exact =
            at::cat({halves[0] * c - halves[1] * sine, halves[1] * c + halves[0] * sine}, 3);
        expect_within(got, exact, 3, at::cat({most(0), most(1)}, 3));
      }
    }
  }
}

TEST(HostRows, SumsAreExactToTheirRoundings) {
  for (const std::int64_t width : kRowWidths) {
    for (const std::int64_t rows : {1, 33, 9001}) {
      const at::Tensor t = random({rows, width}, at::kFloat, 1).to(at::kBFloat16);
      const at::Tensor out = poisoned({width}, at::kFloat),
                       narrow = poisoned({width}, at::kBFloat16);
      sum_rows(t.to(at::kFloat), out);
      sum_rows(t, narrow);
      EXPECT_TRUE(same_bits(narrow, out.to(at::kBFloat16)));
      // 128 parts at the most, each of 32 rows or more.
      const double part = std::max(32.0, std::ceil(static_cast<double>(rows) / 128));
      expect_within(out, t.to(at::kDouble).sum(0), part + 128, t.to(at::kDouble).abs().sum(0));
    }
  }
}

// Enough parts and columns that each of these threads has some.
TEST(HostRows, AFoldOfPartsTakesThemInOrderWhereverItsColumnsAreCut) {
  constexpr std::int64_t kParts = 128, kWidth = 1003;
  const at::Tensor parts = random({kParts, kWidth}, at::kFloat, 1), sum = parts[0].clone();
  for (std::int64_t part = 1; part < kParts; ++part) sum.add_(parts[part]);
  on_every_isa({1, 2, 3, 7}, [&] {
    std::atomic<int> ranges = 0;
    rows::share_out(kWidth, kParts, [&](rows::Range) { ++ranges; });
    EXPECT_EQ(ranges, at::get_num_threads());
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor out = poisoned({kWidth}, dtype);
      rows::fold_rows(parts, out);
      EXPECT_TRUE(same_bits(out, sum.to(dtype))) << dtype;
      const at::Tensor exact = parts.to(at::kDouble);
      expect_within(out, exact.sum(0), kParts - 1, exact.abs().sum(0));
    }
  });
}

TEST(HostRows, ARowOfATableSumsItsPlacesInAscendingOrder) {
  constexpr std::int64_t kPlaces = 203;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t width : kRowWidths) {
      const at::Tensor ids = random_tokens({kPlaces}, 40, 1);
      const at::Tensor dx = random({kPlaces, width}, dtype, 2), terms = dx.to(at::kDouble);
      const at::Tensor sum = at::zeros({50, width}, at::kFloat), none = sum.to(at::kDouble);
      const at::Tensor exact = none.index_add(0, ids, terms);
      const at::Tensor made_of = none.index_add(0, ids, terms.abs());
      for (std::int64_t i = 0; i < kPlaces; ++i)
        sum[ids[i].item<std::int64_t>()] += dx[i].to(at::kFloat);
      const double most = static_cast<double>(at::bincount(ids).max().item<std::int64_t>());
      on_every_isa({1, 2, 3, 4}, [&] {
        const at::Tensor out = poisoned({50, width}, dtype);
        look_up_backward(ids, dx, out);
        EXPECT_TRUE(same_bits(out, sum.to(dtype)));
        expect_within(out, exact, most, made_of);
        const at::Tensor looked = poisoned({kPlaces, width}, dtype);
        look_up({out, ids}, {}, looked);
        const at::Tensor picked = out.index_select(0, ids);
        EXPECT_TRUE(same_bits(looked, picked));
        look_up({out, ids}, {dx, at::arange(kPlaces)}, looked);
        EXPECT_TRUE(same_bits(looked, (picked.to(at::kFloat) + dx.to(at::kFloat)).to(dtype)));
        const at::Tensor both = picked.to(at::kDouble) + terms;
        expect_within(looked, both, 1, both);
      });
    }
  }
}

struct Entropy {
  at::Tensor loss = unknown_number(), dlogits;
};

Entropy entropy_of(const at::Tensor& logits, const at::Tensor& targets, std::int64_t chunk) {
  Entropy e;
  e.dlogits = at::empty_like(logits);
  Softmax softmax(targets);
  const auto for_columns = [&](auto body) {
    for_pieces(logits.size(1), chunk, [&](Columns columns) {
      body(columns, columns.of(logits, 1).clone(at::MemoryFormat::Contiguous));
    });
  };
  for_columns([&](Columns columns, const at::Tensor& part) { softmax.add(columns, part); });
  softmax.write_loss_sum(e.loss);
  for_columns([&](Columns columns, const at::Tensor& part) {
    columns.of(e.dlogits, 1).copy_(softmax.gradient(columns, part, number(0.25)));
  });
  return e;
}

// An exponent is off by 1 unit of itself, up to 30 here, and exp by 2; a sum of 3001 in parts of
// 1024 by their depth, and by 3 for each of the other chunks that it moves with.
TEST(HostRows, CrossEntropyIsExactToItsRoundings) {
  constexpr std::int64_t kVocab = 3001;
  const at::Tensor logits = random({kRows, kVocab}, at::kFloat, 1) * 3;
  at::Tensor targets = random_tokens({1, kRows}, kVocab, 2);
  targets[0][4] = -100;
  const at::Tensor picked = targets.view({-1, 1}), there = picked.ge(0).to(at::kDouble);
  for (const std::int64_t chunk : {std::int64_t{63}, std::int64_t{1024}, kVocab}) {
    const Entropy got = entropy_of(logits, targets, chunk);
    const at::Tensor x = logits.to(at::kDouble), index = picked.clamp_min(0);
    const at::Tensor losses = (x.logsumexp({1}, /*keepdim=*/true) - x.gather(1, index)) * there;
    const at::Tensor share = x.softmax(1) * there * 0.25;
    const at::Tensor one = at::zeros_like(x).scatter_(1, index, 0.25 * there);
    const double sum = 32 + depth(1024) + 3 + 33 * static_cast<double>(kVocab / chunk);
    EXPECT_NEAR(got.loss.item<double>(), losses.sum().item<double>(), kRows * (sum + 32) * kUnit);
    expect_within(got.dlogits, share - one, sum + 36, share + one);
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const Entropy narrow = entropy_of(logits.to(dtype), targets, chunk);
      const Entropy wide = entropy_of(logits.to(dtype).to(at::kFloat), targets, chunk);
      EXPECT_TRUE(same_bits(narrow.loss, wide.loss));
      EXPECT_TRUE(same_bits(narrow.dlogits, wide.dlogits.to(dtype)));
    }
  }
}

TEST(HostRows, ALogitThatIsNotFiniteGivesNoFiniteLoss) {
  for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    for (const std::int64_t column : {0, 63, 99}) {
      const at::Tensor logits = random({3, 100}, at::kFloat, 1);
      logits[1][column] = bad;
      const Entropy e = entropy_of(logits, random_tokens({1, 3}, 100, 2), 40);
      EXPECT_FALSE(std::isfinite(e.loss.item<double>())) << bad << " in " << column;
      EXPECT_FALSE(e.dlogits.isfinite().all().item<bool>());
    }
  }
}

/// What every kernel gives, one after the other.
std::vector<at::Tensor> everything(at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  const at::Tensor floats = all_floats().to(dtype).view({1, -1});
  for (const Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    const MlpInputs inputs{floats, floats.flip({1})};
    all.push_back(activate(activation, inputs));
    const MlpInputs d = activate_backward(activation, MlpInputs(inputs), at::ones_like(floats));
    all.push_back(d.gate_NI), all.push_back(d.up_NI);
  }
  const Rotary turns = turns_of(plain_positions(2, 800), random({33}, at::kFloat, 2), 1);
  all.push_back(rotate(random({2, 800, 3, 66}, dtype, 3), turns, Turn::kBack));
  const at::Tensor t = random({2003, 129}, dtype, 4), ids = random_tokens({2003}, 500, 5);
  const at::Tensor sum = at::empty({129}, t.options()), table = at::empty({500, 129}, t.options());
  sum_rows(t, sum);
  look_up_backward(ids, t, table);
  const at::Tensor looked = at::empty_like(t);
  look_up({table, ids}, {t, at::arange(2003)}, looked);
  const Entropy e =
      entropy_of(random({90, 2503}, dtype, 6) * 3, random_tokens({1, 90}, 2503, 7), 999);
  for (const at::Tensor& more : {sum, table, looked, e.loss, e.dlogits}) all.push_back(more);
  return all;
}

TEST(HostRows, HaveTheSameBitsOnEveryInstructionSetAndForEveryNumberOfThreads) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    expect_same_bits_on_every_isa([&] { return everything(dtype); });
  }
}

}  // namespace
}  // namespace sluice::model
