#include "engine/model/gradient_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "harness.h"
#include "roundings.h"
#include "threads.h"

namespace sluice::model {
namespace {

using shape::Role;

constexpr std::uint64_t kParts = 5;

struct Parts {
  at::Tensor exact, terms, in_order;  // the last in fp32
};

// A sum of so many parts is off by a rounding less, of what they are without their signs.
TEST(GradientSums, AreOfAllPartsInTheirOrderRoundedOnce) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for_threads({1, 2, 3, 4}, [&] {
      BlockParams params(decoder_named("gpt2"), shape::BlockKind::kLayer, dtype);
      GradientSums sums(params);
      std::map<Role, Parts> expected;
      for (std::uint64_t part = 0; part < kParts; ++part) {
        for (const Role role : {Role::kDownBias, Role::kDownWeight, Role::kUpWeight}) {
          const at::Tensor to = sums.gradient(role);
          EXPECT_EQ(to.scalar_type(), role == Role::kDownBias ? at::kFloat : dtype);
          const at::Tensor value = random(to.sizes(), to.scalar_type(), 10 * part + 1);
          to.copy_(value);
          const at::Tensor wide = value.to(at::kDouble), narrow = value.to(at::kFloat);
          Parts& of = expected[role];
          of.exact = of.exact.defined() ? of.exact + wide : wide;
          of.terms = of.terms.defined() ? of.terms + wide.abs() : wide.abs();
          of.in_order = of.in_order.defined() ? of.in_order + narrow : narrow;
        }
      }
      sums.write();
      for (const auto& [role, of] : expected) {
        const at::Tensor got = params.gradients().at(role);
        expect_within(got, of.exact, kParts - 1, of.terms);
        EXPECT_TRUE(same_bits(got, of.in_order.to(dtype)));
      }
    });
  }
}

}  // namespace
}  // namespace sluice::model
