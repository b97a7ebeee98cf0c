#include "engine/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// One test, because the log is the process's: what was said before there was a file comes first.
TEST(Log, SendsLinesWhereTheyBelongAndKeepsEarlyWarningsForTheFile) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log::info("early line");
  log::warning("early warning");
  log::debug("not asked for");
  const test::TempFolder folder;
  log::to_file(folder / "train.log");
  log::info("later line");
  log::error("later error {}");
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(out, "early line\nlater line\n");
  EXPECT_EQ(err, "warning: early warning\nerror: later error {}\n");
  const std::string file = folder.read("train.log");
  EXPECT_THAT(file, AllOf(HasSubstr(" W warning: early warning\n"), HasSubstr(" I later line\n"),
                          HasSubstr(" E error: later error {}\n"), Not(HasSubstr("early line")),
                          Not(HasSubstr("not asked for"))));
  EXPECT_LT(file.find("early warning"), file.find("later line"));
}

TEST(Log, AStatusStaysBelowTheLinesThatCome) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log::status("[=>  ] 1/3");
  log::info("a line");
  log::warning("a warning");
  log::status("[==> ] 2/3");
  log::status("");
  log::info("the last line");
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[=>  ] 1/3" + clear + "a line\n[=>  ] 1/3" +
                                                        clear + "[=>  ] 1/3" + clear +
                                                        "[==> ] 2/3" + clear + "the last line\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: a warning\n");
}

TEST(Log, LongLinesAreBrokenBetweenWords) {
  const std::string word(39, 'x');  // three of them and two spaces are 119 characters
  const std::string three = word + ' ' + word + ' ' + word;
  EXPECT_EQ(log::wrapped(three), three);
  EXPECT_EQ(log::wrapped(three + "y " + word), three + "y\n" + word);
  EXPECT_EQ(log::wrapped(three + "yy " + word), word + ' ' + word + '\n' + word + "yy " + word);
  EXPECT_EQ(log::wrapped(three + " " + three + " z"), three + "\n" + three + "\nz");
}

TEST(Log, LinesThatFitStayAsTheyAre) {
  EXPECT_EQ(log::wrapped(""), "");
  const std::string table = "what\n  a    1\n  b   22\n";
  EXPECT_EQ(log::wrapped(table), table);
}

TEST(Log, ALongWordStaysWhole) {
  const std::string path(300, '/');
  EXPECT_EQ(log::wrapped("at " + path + " it ends"), "at\n" + path + "\nit ends");
}

TEST(Log, CharactersAreCountedNotBytes) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "\xc3\xa9 ";  // e with an accent
  EXPECT_EQ(log::wrapped(text + "e"), text.substr(0, text.size() - 1) + "\ne");
}

TEST(Log, WarningsAndErrorsAreWrappedOnTheTerminal) {
  const std::string word(100, 'x');
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log::error(word + ' ' + word);
  log::info(word + ' ' + word);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: " + word + '\n' + word + '\n');
  EXPECT_EQ(testing::internal::GetCapturedStdout(), word + ' ' + word + '\n');
}

TEST(Log, AFileThatCannotBeOpenedIsAnError) {
  test::expect_error(Errc::kIo, {"/proc/nowhere/train.log"},
                     [] { log::to_file("/proc/nowhere/train.log"); });
}

}  // namespace
}  // namespace sluice
