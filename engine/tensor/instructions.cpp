#include "engine/tensor/instructions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

namespace sluice::tensor {
namespace {

struct Products {
  std::vector<std::string_view> instructions;  ///< of x86; any of them will do
  std::vector<std::string_view> left_out_by;  ///< names of oneDNN's limit; it takes others for none
};

Products products_of(DType type) {
  std::vector<std::string_view> lower = {
      "SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"};
  if (type == DType::kBf16) return {{"avx512_bf16", "amx_bf16"}, lower};
  lower.emplace_back("AVX512_CORE_BF16");
  return {{"avx512_fp16", "amx_fp16"}, lower};
}

constexpr std::array kWithoutAmx = {"AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512",
                                    "AVX10_2_512", "AVX10_2"};

bool is_among(std::string_view word, const std::string& words) {
  return fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

std::string capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

std::optional<Lack> lacks_products(DType type, const CodePaths& paths) {
  // Of others than x86 it is not known.
  if (type == DType::kF32 || !is_among("sse4_1", paths.instructions)) return std::nullopt;
  const Products products = products_of(type);
  const bool there = std::ranges::any_of(
      products.instructions, [&](auto each) { return is_among(each, paths.instructions); });
  if (!there) {
    return Lack{fmt::format("this processor has no instructions for it ({})",
                            fmt::join(products.instructions, ", ")),
                "one that has them multiplies several times as fast"};
  }
  const std::string most = capitals(paths.onednn);
  const std::string unset = "unset that variable (or DNNL_MAX_CPU_ISA)";
  if (std::ranges::find(products.left_out_by, most) != products.left_out_by.end()) {
    return Lack{
        fmt::format("ONEDNN_MAX_CPU_ISA is {}, which leaves out its instructions", paths.onednn),
        unset};
  }
  // [Note: bf16 without AMX]; avx512_fp16 tells the generation.
  if (type != DType::kBf16 || !paths.intel || !is_among("avx512_fp16", paths.instructions)) {
    return std::nullopt;
  }
  if (!is_among("amx_bf16", paths.instructions) || !paths.amx) {
    return Lack{
        "amx_bf16 is hidden from this system or not granted to it, and avx512_bf16 is slower than "
        "fp32",
        "a system that has AMX multiplies several times as fast"};
  }
  if (std::ranges::find(kWithoutAmx, most) == kWithoutAmx.end()) return std::nullopt;
  return Lack{fmt::format("ONEDNN_MAX_CPU_ISA is {}, which leaves out amx_bf16, and avx512_bf16 is "
                          "slower than fp32",
                          paths.onednn),
              unset};
}

bool only_onednn_multiplies_bf16(const CodePaths& paths) {
  return !paths.intel && is_among("avx512_bf16", paths.instructions) &&
         !lacks_products(DType::kBf16, paths);
}

}  // namespace sluice::tensor
