#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(ErrorText, ABugIsToldWithItsPlaceInTheRepository) {
  const Error bug(Errc::kLogic, "2 is 3");
  const unsigned line = __LINE__ - 1;
  EXPECT_EQ(text_of(bug), "2 is 3 (internal error at tests/base/error_test.cpp:" +
                              std::to_string(line) + "; please report it)");
}

TEST(ErrorText, AnythingElseIsToldAsItIs) {
  for (const Errc code :
       {Errc::kConfig, Errc::kBudget, Errc::kEnv, Errc::kIo, Errc::kCheckpoint, Errc::kNonFinite,
        Errc::kWatchdog, Errc::kDevice, Errc::kComm, Errc::kFormat}) {
    EXPECT_EQ(text_of({code, "the run file is wrong"}), "the run file is wrong");
  }
}

TEST(ExitCode, IsTheOneOfTheErrorsClass) {
  EXPECT_EQ(exit_code(Errc::kConfig), 2);
  for (const Errc code : {Errc::kBudget, Errc::kEnv, Errc::kDevice}) EXPECT_EQ(exit_code(code), 3);
  for (const Errc code : {Errc::kIo, Errc::kFormat}) EXPECT_EQ(exit_code(code), 4);
  EXPECT_EQ(exit_code(Errc::kCheckpoint), 5);
  EXPECT_EQ(exit_code(Errc::kNonFinite), 6);
  EXPECT_EQ(exit_code(Errc::kWatchdog), 7);
  for (const Errc code : {Errc::kComm, Errc::kLogic}) EXPECT_EQ(exit_code(code), 1);
}

}  // namespace
}  // namespace sluice
