// `sluice eval`, against what a run of the same file says, and `sluice data samples`.
#include "tests/app/records.h"
#include "tests/support/token_set.h"

namespace sluice::app {
namespace {

using testing::HasSubstr;

class Eval : public RecordsTest {
 protected:
  Ending eval(const std::string& arguments = "") const {
    return shell("$sluice eval run.yaml " + arguments);
  }
  /// The number behind `validation loss`.
  static double loss_in(const Ending& ending) {
    EXPECT_EQ(ending.code, 0) << ending.said;
    const std::string words = words_from(ending.said, "validation loss ");
    return std::stod(words.substr(std::string("validation loss ").size()));
  }
  std::string valid() const { return " data.valid=" + cut_to_sample(7); }
};

TEST_F(Eval, GivesTheLossThatATrainingRunSeesBeforeItsWeightsMove) {
  const std::string one = " train.train_micro_batch_size_per_gpu=1";
  const Records records = run("still", valid() + one + " train.steps=1 optimizer.lr=0");
  EXPECT_NEAR(loss_in(eval(valid() + one)), records.front().at("valid_loss").get<double>(), 1e-6);
  EXPECT_GT(std::abs(loss_in(eval(valid() + one + " seed=7")) - loss_in(eval(valid() + one))),
            1e-4);
}

TEST_F(Eval, NeedsNoTrainingDataAndLeavesNothing) {
  fs::remove(folder_ / "tokens.bin");
  const Ending ending = eval(valid() + " train.train_micro_batch_size_per_gpu=1");
  EXPECT_THAT(ending.said, HasSubstr("of 1 samples of 1"));
  EXPECT_EQ(loss_in(ending), loss_in(eval(valid() + " train.train_micro_batch_size_per_gpu=1")));
  EXPECT_TRUE(!exists("runs") || fs::is_empty(folder_ / "runs"));
}

TEST_F(Eval, InSixteenBitsSaysWhereNothingMultipliesThem) {
  const Ending ending =
      shell("ONEDNN_MAX_CPU_ISA=SSE41 $sluice eval run.yaml precision.compute=bf16" + valid() +
            " train.train_micro_batch_size_per_gpu=1");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("warning: bf16: "));
}

TEST_F(Eval, WithoutValidationDataIsRefused) {
  expect_refused(eval(), kConfig, {"data.valid"});
}

using Samples = ProgramTest;

TEST_F(Samples, AreLinesOfJsonBehindOneOnAllOfThem) {
  test::write_token_set(temp_folder_, "set", {5, 6, 7, 8, 9}, {3, 5}, {0, 0, 1, 1, 1});
  const Ending ending =
      shell("$sluice data samples run.yaml data.train=set.bin --samples 9 2>/dev/null");
  ASSERT_EQ(ending.code, 0) << ending.said;
  std::istringstream lines(ending.said);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"seq_len":16,"samples":1,"places":16,"padding":13,"documents":2,"pieces":2,)"
                  R"("targets":2,"kind":"tokens","tokenizer":null})");
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"sample":0,"documents":[{"tokens":[5,6,7],"counts":[0,0,1]},)"
                  R"({"tokens":[8,9],"counts":[0,1]}],"padding":13})");
  EXPECT_FALSE(std::getline(lines, line)) << line;
}

TEST_F(Samples, OfAStreamAreCutFromIt) {
  const Ending ending = shell("$sluice data samples run.yaml data.seq_len=3 --from 1 --samples 1");
  EXPECT_THAT(ending.said, HasSubstr(R"("documents":null,"pieces":null,"targets":3999)"));
  EXPECT_THAT(ending.said, HasSubstr(R"("tokens":[3,4,5,6],"counts":[0,1,1,1])"));
  expect_refused(shell("$sluice data samples run.yaml --from 249"), kConfig, {"0 to 248"});
}

}  // namespace
}  // namespace sluice::app
