#include "engine/model/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "engine/base/error.h"
#include "engine/model/pieces.h"
#include "engine/tensor/instructions.h"

namespace sluice::model {
namespace {

// Of a tile's sums, and of what is added to them at once. In a whole tile each value that is
// widened goes into a thousand products, beside which widening is little; it takes 20 MiB.
constexpr std::int64_t kSide = 1024, kDepth = 2048;

at::Tensor wide(const at::Tensor& t) {
  return t.to(at::kFloat);
}

at::Tensor tile(const at::Tensor& rows_MK, const at::Tensor& columns_KN, const at::Tensor& bias_N) {
  at::Tensor sums;
  for_pieces(rows_MK.size(1), kDepth, [&](Piece k) {
    const at::Tensor a = wide(k.of(rows_MK, 1)), b = wide(k.of(columns_KN, 0));
    if (sums.defined()) {
      sums.addmm_(a, b);
    } else {
      sums = bias_N.defined() ? at::addmm(wide(bias_N), a, b) : at::mm(a, b);
    }
  });
  return sums;
}

bool lacks(DType type) {
  return tensor::lacks_products(type, tensor::code_paths()).has_value();
}

}  // namespace

bool is_widened(const at::Tensor& t) {
  static const bool bf16 = lacks(DType::kBf16), fp16 = lacks(DType::kF16);
  if (!t.is_cpu()) return false;
  return (bf16 && t.scalar_type() == at::kBFloat16) || (fp16 && t.scalar_type() == at::kHalf);
}

void widened_product_to(at::Tensor out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                        const at::Tensor& bias_N) {
  SLUICE_CHECK(a_MK.size(1) == b_KN.size(0) && out_MN.size(0) == a_MK.size(0) &&
                   out_MN.size(1) == b_KN.size(1),
               kLogic, "a product's sizes do not agree");
  for_pieces(out_MN.size(0), kSide, [&](Piece rows) {
    for_pieces(out_MN.size(1), kSide, [&](Piece columns) {
      const at::Tensor bias = bias_N.defined() ? columns.of(bias_N, 0) : bias_N;
      const at::Tensor sums = tile(rows.of(a_MK, 0), columns.of(b_KN, 1), bias);
      columns.of(rows.of(out_MN, 0), 1).copy_(sums);
    });
  });
}

void product_to(at::Tensor out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                const at::Tensor& bias_N) {
  if (is_widened(a_MK)) {
    widened_product_to(out_MN, a_MK, b_KN, bias_N);
  } else if (bias_N.defined()) {
    at::addmm_out(out_MN, bias_N, a_MK, b_KN);
  } else {
    at::mm_out(out_MN, a_MK, b_KN);
  }
}

at::Tensor product(const at::Tensor& a_MK, const at::Tensor& b_KN, const at::Tensor& bias_N) {
  at::Tensor out_MN = at::empty({a_MK.size(0), b_KN.size(1)}, a_MK.options());
  product_to(out_MN, a_MK, b_KN, bias_N);
  return out_MN;
}

}  // namespace sluice::model
