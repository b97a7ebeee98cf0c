/// The scripts that complete the command line, sourced and asked; and that all help has examples.

#include "tests/app/program.h"

namespace sluice::app {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::UnorderedElementsAre;

class Completion : public ProgramTest {
 protected:
  /// What bash offers behind these words, as readline cuts them; the last one is being typed.
  std::vector<std::string> offers(const std::string& words) const {
    write("ask.bash", "source <($sluice completion bash)\nCOMP_WORDS=(" + words +
                          ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_sluice\n"
                          "printf '%s\\n' \"${COMPREPLY[@]}\"\n");
    const Ending ending = shell("export sluice; bash ask.bash");
    EXPECT_EQ(ending.code, 0) << ending.said;
    std::vector<std::string> lines;
    std::istringstream said(ending.said);
    for (std::string line; std::getline(said, line);) {
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }
};

TEST_F(Completion, VerbsAreOffered) {
  EXPECT_THAT(offers("sluice ''"), IsSupersetOf({"train", "config", "completion", "test"}));
  EXPECT_THAT(offers("./sluice tr"), ElementsAre("train"));
  EXPECT_THAT(offers("sluice config i"), UnorderedElementsAre("init", "import-deepspeed"));
  EXPECT_THAT(offers("sluice completion ''"), UnorderedElementsAre("bash", "zsh"));
}

TEST_F(Completion, OptionsAreOffered) {
  EXPECT_THAT(offers("sluice train --d"), ElementsAre("--dry-run"));
  EXPECT_THAT(offers("sluice train run.yaml --d"), ElementsAre("--dry-run"));
  EXPECT_THAT(offers("sluice config init --"), IsSupersetOf({"--model", "--data", "--valid"}));
}

TEST_F(Completion, AFileComesFirstAndThenKeys) {
  EXPECT_THAT(offers("sluice train ru"), ElementsAre("run.yaml"));
  EXPECT_THAT(offers("sluice config show ''"), Contains("tokens.bin"));
  EXPECT_THAT(offers("sluice train run.yaml aio.e"), ElementsAre("aio.engine="));
  EXPECT_THAT(offers("sluice config validate run.yaml train.s"), ElementsAre("train.steps="));
  EXPECT_THAT(offers("sluice config import-deepspeed run.yaml -o ''"), Contains("tokens.bin"));
  EXPECT_THAT(offers("sluice config init --model ''"), Contains("tokens.bin"));
  EXPECT_THAT(offers("sluice config init --data run.yaml tok"), ElementsAre("tokens.bin"));
}

TEST_F(Completion, TheWordsOfAKeyAreOffered) {
  const auto engines = UnorderedElementsAre("auto", "io_uring", "libaio", "threads");
  EXPECT_THAT(offers("sluice train run.yaml aio.engine ="), engines);
  EXPECT_THAT(offers("sluice train run.yaml aio.engine = ''"), engines);
  EXPECT_THAT(offers("sluice train run.yaml aio.engine = io"), ElementsAre("io_uring"));
  EXPECT_THAT(offers("sluice train run.yaml aio.engine=io"), ElementsAre("aio.engine=io_uring"));
  EXPECT_THAT(offers("sluice train run.yaml data.shuffle = ''"),
              UnorderedElementsAre("true", "false"));
  EXPECT_THAT(offers("sluice train run.yaml name = ''"), ElementsAre("auto"));
  EXPECT_THAT(offers("sluice train run.yaml data.train = tok"), ElementsAre("tokens.bin"));
}

TEST_F(Completion, BothNamesAreCompleted) {
  const Ending ending = shell(
      "export sluice; bash -c 'source <($sluice completion bash); complete -p sluice ./sluice'");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("_sluice sluice\n"), HasSubstr("_sluice ./sluice\n")));
}

TEST_F(Completion, ZshReadsItsScript) {
  if (shell("command -v zsh").code != 0) GTEST_SKIP() << "no zsh here";
  const Ending ending = shell("$sluice completion zsh >s.zsh && zsh -n s.zsh");
  EXPECT_EQ(ending.code, 0) << ending.said;
  EXPECT_EQ(ending.said, "");
}

TEST_F(Completion, AnotherShellIsRefused) {
  expect_refused(shell("$sluice completion fish"), kConfig, {"fish", "bash", "zsh"});
}

/// Every verb that the script knows.
TEST_F(Completion, EveryHelpHasExamples) {
  write("help.bash",
        "source <($sluice completion bash)\n"
        "ask() { local verb; for verb in $(_sluice_words \"$1\"); do\n"
        "  [[ $verb == -* ]] && continue\n"
        "  echo \"verb$1 $verb\"; $sluice $1 $verb --help || exit; ask \"$1 $verb\"; done; }\n"
        "ask ''\n");
  const Ending ending = shell("export sluice; bash help.bash");
  EXPECT_EQ(ending.code, 0) << ending.said;
  std::size_t verbs = 0;
  for (std::size_t at = ending.said.find("verb "); at != std::string::npos; ++verbs) {
    const std::size_t next = ending.said.find("\nverb ", at);
    const std::string help = ending.said.substr(at, next - at);
    const std::string verb = help.substr(5, help.find('\n') - 5);
    const std::size_t examples = help.find("Examples:\n");
    ASSERT_NE(examples, std::string::npos) << help;
    EXPECT_THAT(help.substr(examples), HasSubstr("sluice " + verb)) << help;
    at = next == std::string::npos ? next : next + 1;
  }
  EXPECT_GE(verbs, 11U);
}

}  // namespace
}  // namespace sluice::app
