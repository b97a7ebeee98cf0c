#include "engine/tensor/view.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/errors.h"

namespace sluice::tensor {
namespace {

using test::expect_error;

TEST(View, IsTheCallersMemoryInTheAskedShapeAndType) {
  alignas(64) std::array<float, 6> memory{0, 1, 2, 3, 4, 5};
  const at::Tensor t = view(memory.data(), {2, 3}, DType::kF32);
  EXPECT_EQ(t.data_ptr(), memory.data());
  EXPECT_EQ(t.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_TRUE(t.is_contiguous());
  memory[5] = 50;
  EXPECT_EQ(t.data_ptr<float>()[5], 50);
}

TEST(View, Bf16HasOurBits) {
  alignas(64) std::array<Bf16, 2> memory{to_bf16(1.5F), to_bf16(-3.0F)};
  const at::Tensor t = view(memory.data(), {2}, DType::kBf16);
  EXPECT_EQ(t.scalar_type(), at::kBFloat16);
  EXPECT_EQ(static_cast<float>(t.data_ptr<at::BFloat16>()[1]), -3.0F);
}

TEST(View, BeginsOnAMultipleOf64Bytes) {
  alignas(64) std::array<Bf16, 64> memory{};
  for (std::size_t at = 1; at < 32; ++at) {
    expect_error(Errc::kLogic, {"a tensor at", "64"},
                 [&] { view(memory.data() + at, {2}, DType::kBf16); });
  }
  EXPECT_EQ(view(memory.data() + 32, {2}, DType::kBf16).data_ptr(), &memory[32]);
}

TEST(View, TokensAreInt64) {
  std::vector<std::int64_t> tokens{1, 2, 3, 4};
  const at::Tensor t = view_int64(tokens.data(), {2, 2});
  EXPECT_EQ(t.scalar_type(), at::kLong);
  EXPECT_EQ(t.data_ptr<std::int64_t>()[3], 4);
}

}  // namespace
}  // namespace sluice::tensor
