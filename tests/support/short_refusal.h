/// How much a person is asked to read before they know what to change.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "engine/base/log.h"

namespace sluice::test {

/// `message`, as the terminal shows it, is three lines of log::kColumns characters at most; a table
/// of numbers below it, each line indented, does not count.
inline void expect_short(const std::string& message) {
  std::istringstream shown(log::wrapped("error: " + message));
  int lines = 0;
  for (std::string line; std::getline(shown, line) && !line.starts_with("  ");) ++lines;
  EXPECT_LE(lines, 3) << message;
}

}  // namespace sluice::test
