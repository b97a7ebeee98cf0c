/// From tensors to the types and widths that kernels are made for.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cstdint>

#include "engine/base/error.h"
#include "engine/model/fused/team.h"

namespace sluice::model::fused {

/// Calls body.operator()<T>() with the element type.
template <class Body>
void with_type(at::ScalarType type, Body body) {
  switch (type) {
    case at::kFloat:
      return body.template operator()<float>();
    case at::kBFloat16:
      return body.template operator()<at::BFloat16>();
    case at::kHalf:
      return body.template operator()<at::Half>();
    default:
      throw Error(Errc::kLogic, fmt::format("no kernel works on {}", at::toString(type)));
  }
}

/// Calls body.operator()<T, kPack>(): 16 bytes at a time where every `width` allows it, one element
/// otherwise. Widths follow from shapes, so the path does too.
template <class T, class Body, class... Width>
void with_pack(Body body, Width... width) {
  constexpr int kPack = 16 / sizeof(T);
  if (((width % kPack == 0) && ...)) {
    body.template operator()<T, kPack>();
  } else {
    body.template operator()<T, 1>();
  }
}
template <class Body, class... Width>
void with_type_and_pack(at::ScalarType type, Body body, Width... width) {
  with_type(type, [&]<class T>() { with_pack<T>(body, width...); });
}

/// Calls launch.teams() with the team that a row of this width keeps busy.
template <class Launch, class Body>
void launch_rows(const Launch& launch, std::int64_t rows, std::int64_t width, const Body& body) {
  constexpr std::int64_t kNarrow = 1024;
  if (width <= kNarrow) {
    launch.template teams<kOneWarp>(rows, body);
  } else {
    launch.template teams<kWholeBlock>(rows, body);
  }
}

template <class T>
const T* in(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}
template <class T>
T* out(const at::Tensor& t) {
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}

}  // namespace sluice::model::fused
