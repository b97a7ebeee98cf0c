/// The host's kernels for rows on each instruction set of this machine, for some numbers of
/// threads.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "engine/model/host/isa.h"
#include "harness.h"
#include "threads.h"

namespace sluice::model {

template <class Body>
void on_every_isa(std::initializer_list<int> threads, Body body) {
  for (const rows::Isa& isa : rows::available_isas()) {
    rows::use(isa);
    SCOPED_TRACE(isa.name);
    for_threads(threads, body);
  }
  rows::use(rows::available_isas().front());
}

/// Which of several NaNs an operation passes on is up to the processor, and how it is rounded.
inline bool same_bits_but_of_nan(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor finite = b.isnan().logical_not();
  return same_bits(a.isnan().logical_not(), finite) &&
         same_bits(a.masked_select(finite), b.masked_select(finite));
}

/// What results() gives does not depend on the instruction set and the number of threads.
template <class Results>
void expect_same_bits_on_every_isa(Results results) {
  std::vector<at::Tensor> first;
  on_every_isa({1, 2, 3, 4}, [&] {
    const std::vector<at::Tensor> got = results();
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(same_bits_but_of_nan(got[i], first[i])) << "result " << i;
    }
  });
}

}  // namespace sluice::model
