#include "engine/tensor/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace sluice::tensor {
namespace {

using testing::HasSubstr;

std::optional<std::string> lacks(DType type, const std::string& instructions,
                                 const std::string& onednn = "ALL") {
  CodePaths paths;
  paths.instructions = instructions;
  paths.onednn = onednn;
  return lacks_products(type, paths);
}

TEST(Products, OfATypeNeedInstructionsForIt) {
  EXPECT_EQ(lacks(DType::kBf16, "avx2 avx512_bf16 sse4_1"), std::nullopt);
  EXPECT_EQ(lacks(DType::kBf16, "amx_bf16 sse4_1"), std::nullopt);
  EXPECT_EQ(lacks(DType::kF16, "avx512_fp16 sse4_1"), std::nullopt);
  EXPECT_EQ(lacks(DType::kF32, "sse4_1", "SSE41"), std::nullopt);
  EXPECT_THAT(lacks(DType::kBf16, "avx2 avx512_bf16ish avx512_fp16 sse4_1").value_or(""),
              HasSubstr("no instructions for it (avx512_bf16, amx_bf16)"));
  EXPECT_THAT(lacks(DType::kF16, "amx_bf16 avx512_bf16 sse4_1").value_or(""),
              HasSubstr("no instructions for it (avx512_fp16, amx_fp16)"));
}

TEST(Products, OfOtherProcessorsThanX86AreNotKnown) {
  for (const DType type : {DType::kBf16, DType::kF16}) {
    EXPECT_EQ(lacks(type, "neon", "SSE41"), std::nullopt);
  }
}

TEST(Products, NeedWhatOneDnnMayUse) {
  const std::string has = "avx512_bf16 avx512_fp16 sse4_1";
  for (const char* most : {"DEFAULT", "all", "AVX512_CORE_BF16", "AVX512_CORE_FP16",
                           "AVX512_CORE_AMX", "avx10_1_512", "AVX10_1_512_AMX"}) {
    EXPECT_EQ(lacks(DType::kBf16, has, most), std::nullopt) << most;
    const bool too_old = std::string(most) == "AVX512_CORE_BF16";
    EXPECT_EQ(lacks(DType::kF16, has, most).has_value(), too_old) << most;
  }
  for (const char* most : {"SSE41", "AVX2", "avx2_vnni", "AVX512_CORE", "AVX512_CORE_VNNI"}) {
    for (const DType type : {DType::kBf16, DType::kF16}) {
      EXPECT_THAT(lacks(type, has, most).value_or(""),
                  HasSubstr(std::string("ONEDNN_MAX_CPU_ISA is ") + most));
    }
  }
}

}  // namespace
}  // namespace sluice::tensor
