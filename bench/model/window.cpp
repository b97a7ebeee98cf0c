/// What attention over a window costs beside attention over all tokens, forward and backward: both
/// in turn on the same heads, medians.
///
///   window [TOKENS [WINDOW]]    8192 and 1024
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "engine/base/median.h"
#include "engine/model/kernel.h"

namespace sluice {
namespace {

constexpr std::int64_t kHeads = 12, kDim = 64;  // of GPT-2's 124M
constexpr int kPairs = 5;

double seconds_of(const model::Heads& heads, const at::Tensor& dout, std::int64_t window) {
  const auto begin = std::chrono::steady_clock::now();
  const model::Looked looked = model::look(heads, window);
  model::look_backward(heads, looked, dout, window);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void compare(std::int64_t tokens, std::int64_t window, at::ScalarType dtype) {
  const auto random = [&] {  // token by token, as a model's heads lie
    return at::randn({1, tokens, kHeads, kDim}, at::TensorOptions(at::kFloat))
        .to(dtype)
        .transpose(1, 2);
  };
  const model::Heads heads{random(), random(), random()};
  const at::Tensor dout = random();
  std::vector<double> all, some, ratios;
  for (int pair = 0; pair < kPairs; ++pair) {
    all.push_back(seconds_of(heads, dout, 0));
    some.push_back(seconds_of(heads, dout, window));
    ratios.push_back(some.back() / all.back());
  }
  fmt::print("{}: all {:.3f} s, window {:.3f} s, ratio {:.2f}\n",
             dtype == at::kFloat ? "fp32" : "bf16", median(all), median(some), median(ratios));
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const std::int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 8192;
  const std::int64_t window = argc > 2 ? std::atoll(argv[2]) : 1024;
  if (tokens < 1 || window < 1) {
    fmt::print(stderr, "usage: window [TOKENS [WINDOW]]\n");
    return 2;
  }
  fmt::print("{} tokens, a window of {}, {} heads of {}, forward and backward\n", tokens, window,
             sluice::kHeads, sluice::kDim);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    sluice::compare(tokens, window, dtype);
  }
}
