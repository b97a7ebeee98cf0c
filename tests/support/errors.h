/// What a test asks of an action that must fail.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/ticket.h"

namespace sluice::test {

/// The error that `action` throws; a test failure when it throws none.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Errc::kLogic, "nothing was thrown"};
}

inline Error error_of(const Ticket& ticket) {
  return error_of([&] { ticket.wait(); });
}

/// `action` must fail with `code`, and the message must hold every word.
inline void expect_error(Errc code, const std::vector<std::string>& words,
                         const std::function<void()>& action) {
  const Error error = error_of(action);
  EXPECT_EQ(error.code, code) << error.what();
  for (const std::string& word : words) EXPECT_THAT(error.what(), ::testing::HasSubstr(word));
}

}  // namespace sluice::test
