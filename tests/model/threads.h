/// The same work for some numbers of threads; where few of like cases are run, for the first and
/// the last.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "tests/support/extent.h"

namespace sluice::model {

/// Sets it back at its end.
class NumberOfThreads {
 public:
  NumberOfThreads() = default;
  ~NumberOfThreads() { at::set_num_threads(before_); }
  NumberOfThreads(const NumberOfThreads&) = delete;
  NumberOfThreads& operator=(const NumberOfThreads&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

template <class Body>
void for_threads(std::initializer_list<int> numbers, Body body) {
  const NumberOfThreads restored;
  std::vector<int> tried(numbers);
  if (test::extent() != test::Extent::kAll && tried.size() > 2)
    tried = {tried.front(), tried.back()};
  for (const int n : tried) {
    SCOPED_TRACE(testing::Message() << "threads: " << n);
    at::set_num_threads(n);
    body();
  }
}

}  // namespace sluice::model
