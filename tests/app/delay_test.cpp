// Updates that are one step late, as their user meets them: what a run says of them, and what its
// checkpoints can be gone on from with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/app/program.h"

namespace sluice::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Delayed : public ProgramTest {
 protected:
  /// Ten steps, of which those behind the fourth are late; saved after the fourth and the eighth.
  std::string arguments(const std::string& more = "") const {
    return "train.steps=10 optimizer.update=delayed optimizer.delayed_update_start=4 "
           "checkpoint.every=4 logging.log_every=1 " +
           more;
  }
  static constexpr const char* kEarly = "train.resume=runs/first/checkpoints/step-4 ";
  static constexpr const char* kLate = "train.resume=runs/first/checkpoints/step-8 ";
};

TEST_F(Delayed, TheStartAndEachStepSayWhatIsLate) {
  const Ending dry = train(arguments("--dry-run"));
  EXPECT_EQ(dry.code, 0) << dry.said;
  EXPECT_THAT(dry.said,
              AllOf(HasSubstr("optimizer.update: delayed: from step 5 on each gradient is "
                              "applied one step late"),
                    HasSubstr("optimizer.update: end would take")));
  const Ending ending = train(arguments("name=first"));
  EXPECT_EQ(ending.code, 0) << ending.said;
  const auto fourth = ending.said.find("step 4/10"), fifth = ending.said.find("step 5/10");
  EXPECT_THAT(ending.said.substr(fourth, fifth - fourth), Not(HasSubstr("delayed")));
  EXPECT_THAT(ending.said.substr(fifth, 200), HasSubstr("| delayed |"));
  EXPECT_THAT(train("--dry-run").said, HasSubstr("optimizer.update: delayed would take"));
  const Ending never = train(arguments("optimizer.delayed_update_start=10 --dry-run"));
  EXPECT_THAT(never.said, HasSubstr("no update is late; lower optimizer.delayed_update_start"));
}

TEST_F(Delayed, AGradientThatWaitsIsNeverDropped) {
  const Ending first = train(arguments("name=first"));
  ASSERT_EQ(first.code, 0) << first.said;
  const Ending end = train(std::string("name=end train.steps=10 optimizer.update=end ") + kLate);
  EXPECT_EQ(end.code, kConfig) << end.said;
  EXPECT_THAT(end.said, AllOf(HasSubstr("step-8: the update of step 8 is still to come"),
                              HasSubstr("optimizer.delayed_update_start")));
  const Ending same = train(arguments(std::string("name=same ") + kLate));
  EXPECT_EQ(same.code, 0) << same.said;
  EXPECT_EQ(text_of("runs/same/final/model.safetensors"),
            text_of("runs/first/final/model.safetensors"));
  const Ending dry = train(arguments(std::string("name=dry --dry-run ") + kLate));
  EXPECT_THAT(dry.said, AllOf(HasSubstr("a gradient of step 8 waits: its update is applied beside"),
                              Not(HasSubstr("optimizer.update: end"))))
      << "which such a run cannot take";
  EXPECT_THAT(shell("$sluice checkpoint show runs/first/checkpoints/step-8").said,
              AllOf(HasSubstr("step 8, 7 updates applied"), HasSubstr("of step 8 is pending")));
  const Ending out = train(arguments(
      std::string("name=out optimizer.delayed_update_start=100 checkpoint.every=1 ") + kLate));
  EXPECT_EQ(out.code, 0) << out.said;
  EXPECT_EQ(shell("$sluice checkpoint list runs/out").said.find("pending"), std::string::npos);
}

/// When the optimizer works changes no number, whether it is late does.
TEST_F(Delayed, ChangingIntoItIsSaid) {
  ASSERT_EQ(train(arguments("name=first")).code, 0);
  const std::string others = std::string("train.steps=10 ") + kEarly;
  const Ending end = train("name=end optimizer.update=end " + others);
  EXPECT_EQ(end.code, 0) << end.said;
  EXPECT_THAT(end.said,
              HasSubstr("goes on with another optimizer.update: \"delayed\" before, \"end\" now"));
  const Ending again = train(
      "name=again optimizer.update=auto checkpoint.every=2 train.steps=10 "
      "train.resume=runs/end/checkpoints/step-10");
  EXPECT_THAT(again.said, Not(HasSubstr("another optimizer.update")));
}

}  // namespace
}  // namespace sluice::app
