#include "engine/bench/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/errors.h"

namespace sluice::bench {
namespace {

TEST(Verdict, ReadsTheSizeOfAModel) {
  EXPECT_EQ(parse_parameters("8B"), 8'000'000'000U);
  EXPECT_EQ(parse_parameters("1.3B"), 1'300'000'000U);
  EXPECT_EQ(parse_parameters("124M"), 124'000'000U);
  EXPECT_EQ(parse_parameters("350 K"), 350'000U);
  EXPECT_EQ(parse_parameters("1.5T"), 1'500'000'000'000U);
  for (const std::string bad : {"", "8", "B", "-8B", "0B", "8GB", "8b", "8BB", "eight", "nanB",
                                "infB", "2000T", "0.1e-9B"}) {
    test::expect_error(Errc::kConfig, {"'" + bad + "'", "8B, 1.3B or 124M"},
                       [&] { parse_parameters(bad); });
  }
}

/// 8B at 2 GB/s each way: 96 GB each way take 48 s.
Question eight_billion() {
  Question question;
  question.parameters = 8'000'000'000;
  question.rates = {2e9, 2e9, 3e9, 3e9};
  return question;
}

TEST(Verdict, OfEightBillionParametersAgreesWithPaper) {
  Question question = eight_billion();
  question.flops_per_s = 120e12;
  question.endurance = 600e12;
  const Verdict verdict = judge(question);
  EXPECT_DOUBLE_EQ(verdict.read_bytes, 96e9);
  EXPECT_DOUBLE_EQ(verdict.written_bytes, 96e9);
  EXPECT_DOUBLE_EQ(verdict.drive_s, 48);
  // 48 s x 120e12 / (8 x 8e9)
  EXPECT_DOUBLE_EQ(verdict.tokens, 90'000);
  // 600e12 / 96e9, at 48 s each: 300,000 s
  EXPECT_DOUBLE_EQ(verdict.steps, 6250);
  EXPECT_NEAR(verdict.days, 3.4722, 1e-4);
}

TEST(Verdict, LetsTheSlowerDirectionFinishAlone) {
  Question question = eight_billion();
  // 48 s until all is read; by then 48 of 96 GB are written, and the rest takes 32 s at 1.5 GB/s.
  question.rates = {2e9, 1e9, 0, 1.5e9};
  EXPECT_DOUBLE_EQ(judge(question).drive_s, 80);
  // The same with the directions exchanged.
  question.rates = {1e9, 2e9, 1.5e9, 0};
  EXPECT_DOUBLE_EQ(judge(question).drive_s, 80);
  // Not measured alone: it goes on as it went.
  question.rates = {2e9, 1e9, 0, 0};
  EXPECT_DOUBLE_EQ(judge(question).drive_s, 96);
}

TEST(Verdict, CountsDaysByTheLongerOfStepAndDrive) {
  Question question = eight_billion();
  question.endurance = 600e12;
  question.step_s = 86.4;
  EXPECT_NEAR(judge(question).days, 6.25, 1e-9);
  question.step_s = 1;  // no step is shorter than its drive
  EXPECT_DOUBLE_EQ(judge(question).step_s, 48);
}

TEST(Verdict, SaysItInAFewLines) {
  Question question = eight_billion();
  EXPECT_EQ(text_of(judge(question)),
            "8B parameters, optimizer state on this drive: 96 GB read and 96 GB written each step\n"
            "at 4.00 GB/s, both ways together: 48.0 s a step\n");
  question.flops_per_s = 120e12;
  question.endurance = 600e12;
  EXPECT_THAT(text_of(judge(question)),
              testing::EndsWith(
                  "hidden behind the computing when a step has 90,000 tokens or more, at 120 "
                  "TFLOP/s\n"
                  "600 TB of writes are used up after 6,250 steps, 3.5 days at 48.0 s a step\n"));
}

TEST(Verdict, OfASmallModelKeepsItsDigits) {
  Question question = eight_billion();
  question.parameters = 124'000'000;
  EXPECT_THAT(text_of(judge(question)),
              testing::HasSubstr("124M parameters, optimizer state on this drive: 1.49 GB read"));
}

TEST(Verdict, NeedsAMeasuredDrive) {
  Question question = eight_billion();
  question.rates.mixed_write = 0;
  test::expect_error(Errc::kLogic, {"not measured"}, [&] { judge(question); });
}

}  // namespace
}  // namespace sluice::bench
