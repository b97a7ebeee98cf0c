/// Run files that are refused, as rows: what is written, and what the message must say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/load.h"
#include "tests/support/short_refusal.h"

namespace sluice::config {

/// The message that `text` is refused with; "" when it is accepted.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {},
                           const Environment& environment = {}) {
  try {
    from_text(text, overrides, environment);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::kConfig);
    test::expect_short(e.what());
    return e.what();
  }
  return {};
}

struct Case {
  const char* name;
  std::string text;  // after "model: {preset: tiny}\n", so line 1 of it is line 2
  std::string begins;
  std::vector<std::string> says;
};

inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class Refused : public testing::TestWithParam<Case> {};

inline std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

}  // namespace sluice::config
