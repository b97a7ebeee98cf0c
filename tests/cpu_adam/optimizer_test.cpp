#include "cpu_adam/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <thread>

#include "cpu_adam/kernel.h"
#include "engine/base/cores.h"
#include "tests/cpu_adam/oracle.h"
#include "tests/cpu_adam/problem.h"
#include "tests/support/errors.h"

namespace sluice::cpu_adam {
namespace {

Errc code_of(const std::function<void()>& action) {
  return test::error_of(action).code;
}

const Options kPlain{.threads = 2, .isa = Isa::kAuto, .stores = Stores::kCached};

TEST(Isa, ListsTheBestFirstAndScalarLast) {
  const std::vector<Isa> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), Isa::kScalar);
  EXPECT_EQ(choose_isa(Isa::kAuto), isas.front());
}

TEST(Isa, IsSpelledAsInTheRunFile) {
  EXPECT_EQ(name_of(Isa::kAuto), "auto");
  EXPECT_EQ(name_of(Isa::kAvx512), "avx512");
  EXPECT_EQ(name_of(Isa::kAvx2), "avx2");
  EXPECT_EQ(name_of(Isa::kSse2), "sse2");
  EXPECT_EQ(name_of(Isa::kNeon), "neon");
  EXPECT_EQ(name_of(Isa::kScalar), "scalar");
}

TEST(Isa, HasKernelsOfItsOwn) {
  std::set<const Kernels*> kernels;
  for (const Isa isa : available_isas()) kernels.insert(&kernels_of(isa));
  EXPECT_EQ(kernels.size(), available_isas().size());
  EXPECT_EQ(&kernels_of(Isa::kAuto), &kernels_of(available_isas().front()));
}

TEST(Isa, RefusesWhatThisMachineCannotRunAndSaysWhatItCan) {
#if defined(__x86_64__)
  const Isa foreign = Isa::kNeon;
#else
  const Isa foreign = Isa::kAvx512;
#endif
  test::expect_error(Errc::kConfig, {"scalar"},
                     [&] { const Optimizer adam({.threads = 1, .isa = foreign}); });
}

TEST(Optimizer, TakesEveryCoreAndDecidesTheStoresWhenLeftAlone) {
  const Optimizer adam({});
  EXPECT_EQ(adam.threads(), core_count());
  EXPECT_NE(adam.isa(), Isa::kAuto);
  EXPECT_NE(adam.stores(), Stores::kAuto);
  EXPECT_NE(adam.describe().find(name_of(adam.isa())), std::string::npos) << adam.describe();
}

TEST(Optimizer, RefusesZeroThreadsAndMoreThanAMachineHas) {
  EXPECT_EQ(code_of([] { Optimizer adam({.threads = 0}); }), Errc::kConfig);
  EXPECT_EQ(code_of([] { Optimizer adam({.threads = 4097}); }), Errc::kConfig);
}

TEST(Optimizer, RefusesSpansOfUnequalLengthAndWritesNothing) {
  const Optimizer adam(kPlain);
  const Hyper hyper = some_hyper(Mode::kAdamW);
  const Problem p(100, 0, 1);
  const Problem before = p;
  const State state = p.state();
  const Values gradient = values_of(p, DType::kF32);
  const Gradient short_term(gradient, p.gradient32.span().first(99));
  const Gradient of_two_types(gradient, values_of(p, DType::kBf16));
  const std::span<Bf16> copy = p.published_bf16.span();
  const std::span<const float> short_gradient = p.gradient32.span().first(99);
  std::vector<double> partials(2);
  for (const Errc code : {
           code_of([&] {
             adam.update(hyper, {state.master, state.m.first(99), state.v}, gradient, copy);
           }),
           code_of([&] {
             adam.update(hyper, {state.master, state.m, state.v.first(99)}, gradient, copy);
           }),
           code_of([&] { adam.update(hyper, state, short_gradient, copy); }),
           code_of([&] { adam.update(hyper, state, short_term, copy); }),
           code_of([&] { adam.update(hyper, state, of_two_types, copy); }),
           code_of([&] { adam.grain_norms(short_term, std::span(partials).first(1)); }),
           code_of([&] { adam.update(hyper, state, gradient, copy.first(99)); }),
           code_of([&] { adam.grain_norms(gradient, partials); }),
           code_of([&] { adam.accumulate(state.master, short_gradient); }),
           code_of([&] { adam.assign(state.master, short_gradient); }),
           code_of([&] { adam.add(state.master, gradient, short_gradient); }),
           code_of([&] { adam.publish(copy.first(99), state.master); }),
       }) {
    EXPECT_EQ(code, Errc::kLogic);
  }
  EXPECT_EQ(bits_of(p.master.span()), bits_of(before.master.span()));
  EXPECT_EQ(bits_of(p.m.span()), bits_of(before.m.span()));
  EXPECT_EQ(bits_of(p.v.span()), bits_of(before.v.span()));
  EXPECT_EQ(bits_of(p.published_bf16.span()), bits_of(before.published_bf16.span()));
}

TEST(Optimizer, RefusesConstantsThatMakeNoSense) {
  const Optimizer adam(kPlain);
  const Problem p(8, 0, 1);
  const auto code_with = [&](auto change) {
    Hyper hyper = some_hyper(Mode::kAdamW);
    change(hyper);
    return code_of(
        [&] { adam.update(hyper, p.state(), gradient_of(p, DType::kF32), std::monostate{}); });
  };
  EXPECT_EQ(code_with([](Hyper& h) { h.beta1 = 1; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.beta2 = -0.1F; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.eps = 0; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.bias_correction1 = 0; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.bias_correction2 = 0; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.eps = INFINITY; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.bias_correction1 = 1.5F; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.bias_correction2 = 1.5F; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.weight_decay = NAN; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.clip = NAN; }), Errc::kLogic);
  EXPECT_EQ(code_with([](Hyper& h) { h.lr = INFINITY; }), Errc::kLogic);
}

TEST(Optimizer, ServesSeveralThreadsAtOnce) {
  const Optimizer adam(kPlain);
  const Problem before(13 * kGrainElems + 1, 0, 2);
  const Problem want = before;
  const Hyper hyper = some_hyper(Mode::kAdam);
  adam.update(hyper, want.state(), gradient_of(want, DType::kF32), want.published_bf16.span());
  std::vector<Problem> problems(4, before);
  {
    std::vector<std::jthread> callers;
    for (const Problem& p : problems) {
      callers.emplace_back([&] {
        adam.update(hyper, p.state(), gradient_of(p, DType::kF32), p.published_bf16.span());
      });
    }
  }
  for (const Problem& p : problems) {
    EXPECT_EQ(bits_of(p.master.span()), bits_of(want.master.span()));
    EXPECT_EQ(bits_of(p.published_bf16.span()), bits_of(want.published_bf16.span()));
  }
}

TEST(Optimizer, WorksAfterItIsMoved) {
  Optimizer first(kPlain);
  const Optimizer adam = std::move(first);
  std::vector<float> gradient(10, 2.0F);
  std::vector<double> partials(1);
  adam.grain_norms(std::span<const float>(gradient), partials);
  EXPECT_EQ(partials[0], 40.0);
}

/// 1 - beta^t of the float beta, computed with 80 decimal digits and rounded once.
TEST(BiasCorrection, IsOneMinusThePowerRoundedOnce) {
  EXPECT_EQ(bias_correction(0.0F, 1), 1.0F);
  EXPECT_EQ(bias_correction(0.5F, 10), 0x1.ff8p-1F);
  EXPECT_EQ(bias_correction(0.9F, 1), 0x1.9999ap-4F);
  EXPECT_EQ(bias_correction(0.9F, 2), 0x1.851ebep-3F);
  EXPECT_EQ(bias_correction(0.9F, 3), 0x1.15810ap-2F);
  EXPECT_EQ(bias_correction(0.9F, 10), 0x1.4d7a08p-1F);
  EXPECT_EQ(bias_correction(0.95F, 3), 0x1.241898p-3F);
  EXPECT_EQ(bias_correction(0.95F, 10), 0x1.9ae4bap-2F);
  EXPECT_EQ(bias_correction(0.999F, 1), 0x1.0624p-10F);
  EXPECT_EQ(bias_correction(0.999F, 2), 0x1.060272p-9F);
  EXPECT_EQ(bias_correction(0.999F, 10), 0x1.463486p-7F);
  EXPECT_EQ(bias_correction(0.999F, 1000), 0x1.43bccep-1F);
  EXPECT_EQ(bias_correction(0.999F, 123'456), 1.0F);
}

TEST(GlobalNorm, AddsInOrder) {
  EXPECT_EQ(global_norm({}), 0.0);
  const std::vector<double> nine{9.0}, sixteen{16.0};
  EXPECT_EQ(global_norm(std::vector<std::span<const double>>{nine, {}, sixteen}), 5.0);
  const std::vector<double> one{1.0};
  const std::vector<double> small(4, 0x1p-53);  // each is rounded away, all are not
  EXPECT_EQ(global_norm(std::vector<std::span<const double>>{one, small}), 1.0);
  EXPECT_GT(global_norm(std::vector<std::span<const double>>{small, one}), 1.0);
}

}  // namespace
}  // namespace sluice::cpu_adam
