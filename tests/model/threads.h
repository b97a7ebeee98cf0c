/// The same work for some numbers of threads.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <initializer_list>

namespace sluice::model {

template <class Body>
void for_threads(std::initializer_list<int> numbers, Body body) {
  const int before = at::get_num_threads();
  for (const int n : numbers) {
    SCOPED_TRACE(testing::Message() << "threads: " << n);
    at::set_num_threads(n);
    body();
  }
  at::set_num_threads(before);
}

}  // namespace sluice::model
