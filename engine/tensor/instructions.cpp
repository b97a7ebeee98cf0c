#include "engine/tensor/instructions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace sluice::tensor {
namespace {

/// Of x86. oneDNN's most: any name of these, in capitals, or one that begins so.
struct Products {
  std::vector<std::string_view> instructions;
  std::vector<std::string_view> allowed_by;
};

Products products_of(DType type) {
  if (type == DType::kBf16) {
    return {{"avx512_bf16", "amx_bf16"},
            {"ALL", "DEFAULT", "AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX10"}};
  }
  return {{"avx512_fp16", "amx_fp16"},
          {"ALL", "DEFAULT", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX10"}};
}

bool is_among(std::string_view word, const std::string& words) {
  return fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

std::string capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

std::optional<std::string> lacks_products(DType type, const CodePaths& paths) {
  // Of others than x86 it is not known.
  if (type == DType::kF32 || !is_among("sse4_1", paths.instructions)) return std::nullopt;
  const Products products = products_of(type);
  const bool there = std::ranges::any_of(
      products.instructions, [&](auto each) { return is_among(each, paths.instructions); });
  if (!there) {
    return fmt::format("this processor has no instructions for it ({})",
                       fmt::join(products.instructions, ", "));
  }
  const std::string most = capitals(paths.onednn);
  const bool allowed =
      std::ranges::any_of(products.allowed_by, [&](auto each) { return most.starts_with(each); });
  if (allowed) return std::nullopt;
  return fmt::format("ONEDNN_MAX_CPU_ISA is {}, which leaves out its instructions", paths.onednn);
}

}  // namespace sluice::tensor
