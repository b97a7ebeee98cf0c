/// A dimension that is gone through in pieces of one size; the last one may be shorter.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "engine/base/error.h"

namespace sluice::model {

struct Piece {
  std::int64_t begin;
  std::int64_t n;

  at::Tensor of(const at::Tensor& t, std::int64_t dim = 0) const { return t.narrow(dim, begin, n); }
};

/// body(Piece), from the first piece to the last.
template <class Body>
void for_pieces(std::int64_t n, std::int64_t most, Body body) {
  SLUICE_CHECK(most > 0, kLogic, "pieces of nothing");
  for (std::int64_t begin = 0; begin < n; begin += most) {
    body(Piece{begin, std::min(most, n - begin)});
  }
}

}  // namespace sluice::model
