#include "engine/tensor/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace sluice::tensor {
namespace {

using testing::HasSubstr;

std::optional<Lack> lack(DType type, const std::string& instructions,
                         const std::string& onednn = "ALL", bool intel = false, bool amx = true) {
  CodePaths paths;
  paths.intel = intel;
  paths.amx = amx;
  paths.instructions = instructions;
  paths.onednn = onednn;
  return lacks_products(type, paths);
}

TEST(Products, OfATypeNeedInstructionsForIt) {
  EXPECT_FALSE(lack(DType::kBf16, "avx2 avx512_bf16 sse4_1"));
  EXPECT_FALSE(lack(DType::kBf16, "amx_bf16 sse4_1"));
  EXPECT_FALSE(lack(DType::kF16, "avx512_fp16 sse4_1"));
  EXPECT_FALSE(lack(DType::kF32, "sse4_1", "SSE41"));
  const auto of_bf16 = lack(DType::kBf16, "avx2 avx512_bf16ish avx512_fp16 sse4_1");
  ASSERT_TRUE(of_bf16);
  EXPECT_THAT(of_bf16->reason, HasSubstr("no instructions for it (avx512_bf16, amx_bf16)"));
  const auto of_fp16 = lack(DType::kF16, "amx_bf16 avx512_bf16 sse4_1");
  ASSERT_TRUE(of_fp16);
  EXPECT_THAT(of_fp16->reason, HasSubstr("no instructions for it (avx512_fp16, amx_fp16)"));
}

TEST(Products, OfOtherProcessorsThanX86AreNotKnown) {
  for (const DType type : {DType::kBf16, DType::kF16}) EXPECT_FALSE(lack(type, "neon", "SSE41"));
}

TEST(Products, OfBf16NeedAmxWhereIntelsOthersAreSlowerThanFp32) {
  const std::string hidden = "avx512_bf16 avx512_fp16 sse4_1", whole = hidden + " amx_bf16";
  const auto of = [](const std::string& has, const char* most, DType type = DType::kBf16) {
    return lack(type, has, most, /*intel=*/true);
  };
  ASSERT_TRUE(of(hidden, "ALL"));
  EXPECT_THAT(of(hidden, "ALL")->reason, HasSubstr("amx_bf16 is hidden"));
  EXPECT_TRUE(lack(DType::kBf16, whole, "ALL", true, /*amx=*/false)) << "not granted";
  EXPECT_FALSE(lack(DType::kBf16, hidden, "ALL", false, false)) << "of others";
  EXPECT_FALSE(of(hidden, "ALL", DType::kF16));
  EXPECT_FALSE(of("avx512_bf16 sse4_1", "ALL")) << "a Cooper Lake";
  for (const char* most : {"ALL", "AVX512_CORE_AMX", "avx10_1_512_amx"}) {
    EXPECT_FALSE(of(whole, most)) << most;
  }
  for (const char* most : {"avx512_core_bf16", "AVX512_CORE_FP16", "AVX10_1_512", "avx10_2_512"}) {
    ASSERT_TRUE(of(whole, most)) << most;
    EXPECT_THAT(of(whole, most)->reason, HasSubstr("leaves out amx_bf16")) << most;
    EXPECT_THAT(of(whole, most)->remedy, HasSubstr("unset"));
  }
}

TEST(Products, NeedWhatOneDnnMayUse) {
  const std::string has = "avx512_bf16 avx512_fp16 sse4_1";
  for (const char* most : {"DEFAULT", "all", "AVX512_CORE_BF16", "AVX512_CORE_FP16",
                           "AVX512_CORE_AMX", "avx10_1_512", "AVX10_1_512_AMX", "of no meaning"}) {
    EXPECT_FALSE(lack(DType::kBf16, has, most)) << most;
    const bool too_old = std::string(most) == "AVX512_CORE_BF16";
    EXPECT_EQ(lack(DType::kF16, has, most).has_value(), too_old) << most;
  }
  for (const char* most : {"SSE41", "AVX2", "avx2_vnni", "AVX512_CORE", "AVX512_CORE_VNNI"}) {
    for (const DType type : {DType::kBf16, DType::kF16}) {
      const auto found = lack(type, has, most);
      ASSERT_TRUE(found) << most;
      EXPECT_THAT(found->reason, HasSubstr(std::string("ONEDNN_MAX_CPU_ISA is ") + most));
      EXPECT_THAT(found->remedy, HasSubstr("unset"));
    }
  }
}

TEST(SmallProducts, OfBf16AreOneDnnsAloneOnAmdsProcessorsWithInstructionsForIt) {
  const auto only_onednn = [](const char* instructions, bool intel, const char* most = "ALL") {
    CodePaths paths;
    paths.intel = intel;
    paths.instructions = instructions;
    paths.onednn = most;
    return only_onednn_multiplies_bf16(paths);
  };
  const char* zen4 = "avx2 avx512_bf16 sse4_1";
  EXPECT_TRUE(only_onednn(zen4, false));
  EXPECT_TRUE(only_onednn(zen4, false, "AVX512_CORE_BF16"));
  EXPECT_FALSE(only_onednn(zen4, false, "AVX512_CORE")) << "nor oneDNN";
  EXPECT_FALSE(only_onednn(zen4, true)) << "MKL too";
  EXPECT_FALSE(only_onednn("avx2 sse4_1", false)) << "a Zen 3";
  EXPECT_FALSE(only_onednn("neon bf16", false));
}

}  // namespace
}  // namespace sluice::tensor
