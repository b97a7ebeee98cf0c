/// What the program says when something goes wrong, and its exit code.

#include "engine/base/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "engine/base/error.h"

namespace sluice {
namespace {

struct Said {
  int code;
  std::string text;
};

Said reported(const std::exception& error) {
  testing::internal::CaptureStderr();
  const int code = report(error, "buy some");
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(Report, ABugInTheProgramIsCalledOneAndSaysWhere) {
  const Error bug(Errc::kLogic, "a sample of a dataset with none");
  const auto [code, text] = reported(bug);
  EXPECT_EQ(code, 1);
  EXPECT_EQ(text,
            "error: a sample of a dataset with none (internal error at "
            "tests/base/report_test.cpp:" +
                std::to_string(bug.where.line()) + "; please report it)\n");
}

TEST(Report, AnErrorOfALibraryIsABugToo) {
  const auto [code, text] = reported(std::runtime_error("bad cast"));
  EXPECT_EQ(code, 1);
  EXPECT_EQ(text, "error: bad cast (internal error; please report it)\n");
}

TEST(Report, AUsersMistakeIsNone) {
  const auto [code, text] = reported(Error(Errc::kConfig, "data.seq_len is 17"));
  EXPECT_EQ(code, 2);
  EXPECT_EQ(text, "error: data.seq_len is 17\n");
}

TEST(Report, AProcessThatCannotBeUnwoundEndsWithTheCodeOfItsError) {
  EXPECT_EXIT(end_process(Error(Errc::kWatchdog, "an op hangs")), testing::ExitedWithCode(7), "");
}

TEST(Report, NoMemoryIsTheMachinesLimit) {
  const auto [code, text] = reported(std::bad_alloc());
  EXPECT_EQ(code, 3);
  EXPECT_THAT(text, testing::HasSubstr("no memory left; buy some"));
}

}  // namespace
}  // namespace sluice
