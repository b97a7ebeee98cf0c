/// Runs that begin beside others and end before their time: by a signal, by kill -9.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "tests/app/program.h"

namespace sluice::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kInterrupted = 128 + SIGINT;
constexpr int kTerminated = 128 + SIGTERM;

class StartAndStop : public ProgramTest {
 protected:
  /// Signals must reach the program itself, and a shell's background jobs ignore Ctrl-C.
  Ending bare_shell(const std::string& script) const {
    return shell("sluice=\"env --default-signal=INT ${sluice#timeout 300}\"\n" + script);
  }
};

TEST_F(StartAndStop, ASignalEndsTheRunAfterTheStepsUnderWay) {
  rewrite("checkpoint: {", "checkpoint: {save_on_signal: false, ");
  for (const auto& [name, code] : {std::pair{"INT", kInterrupted}, {"TERM", kTerminated}}) {
    const Ending ending = bare_shell(in_the_middle(std::string("kill -s ") + name + " $pid"));
    EXPECT_EQ(ending.code, code) << ending.said;
    EXPECT_THAT(ending.said, HasSubstr(std::string("stopped by SIG") + name + " after step "));
    EXPECT_THAT(text_of("runs/run/train.log"), HasSubstr("stopped by SIG"));
    const std::string metrics = text_of("runs/run/metrics.jsonl");
    EXPECT_TRUE(metrics.ends_with("}\n"));
    EXPECT_THAT(metrics.substr(metrics.rfind('\n', metrics.size() - 2) + 1),
                HasSubstr("\"memory\""));
    const auto told = std::ranges::count(metrics, '\n');
    EXPECT_THAT(ending.said, HasSubstr(fmt::format("after step {} of 100000", told)));
    expect_nothing_half_written();
    fs::remove_all(folder_ / "runs");
  }
}

/// Two steps are under way when the signal comes.
TEST_F(StartAndStop, TheStepsUnderWayAreFinishedAndTold) {
  rewrite("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 200");
  const Ending ending = bare_shell(
      in_the_middle("before=$(wc -l < runs/run/metrics.jsonl); kill -TERM $pid; wait $pid\n"
                    "echo told $(($(wc -l < runs/run/metrics.jsonl) - before)); false"));
  EXPECT_THAT(ending.said, testing::ContainsRegex("told ([2-9]|[1-9][0-9]+)\n"));
}

TEST_F(StartAndStop, AnIgnoredCtrlCStaysIgnored) {
  rewrite("checkpoint: {", "checkpoint: {save_on_signal: false, ");
  const Ending ending =
      shell("sluice=${sluice#timeout 300}; trap '' INT\n" +
            in_the_middle("kill -INT $pid; sleep 0.5; kill -0 $pid && echo deaf; kill -TERM $pid"));
  EXPECT_EQ(ending.code, kTerminated) << ending.said;
  EXPECT_THAT(ending.said, HasSubstr("deaf\n"));
  EXPECT_THAT(ending.said, AllOf(HasSubstr("stopped by SIGTERM"), Not(HasSubstr("SIGINT"))));
}

/// Steps of many micro-batches, so that the second signal comes while one is under way.
TEST_F(StartAndStop, ASecondSignalEndsTheRunAtOnce) {
  rewrite("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 2000");
  const Ending ending = bare_shell(in_the_middle("kill -TERM $pid; sleep 0.1; kill -TERM $pid"));
  EXPECT_EQ(ending.code, kTerminated) << ending.said;
  EXPECT_THAT(ending.said,
              AllOf(HasSubstr("once more stops at once"), Not(HasSubstr("stopped by"))));
}

TEST_F(StartAndStop, AKilledRunLeavesNothingInTheWayOfTheNext) {
  const Ending killed = bare_shell(in_the_middle("kill -KILL $pid"));
  EXPECT_EQ(killed.code, kKilled) << killed.said;
  EXPECT_TRUE(fs::is_empty(folder_ / "runs/run/nvme"));
  for (const auto& entry : fs::directory_iterator(folder_ / "runs/run")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("final")) continue;
    EXPECT_THAT(name, HasSubstr("final.partial-"));
  }
  const Ending next = train();
  EXPECT_EQ(next.code, 0) << next.said;
  EXPECT_TRUE(exists("runs/run-2/final/model.safetensors"));
  EXPECT_FALSE(exists("runs/run/final"));
}

/// The drive's own watchdog, aio.timeout, waits for longer.
TEST_F(StartAndStop, ARunWhoseDriveNeverAnswersIsEndedByTheWatchdog) {
  const Ending ending = shell("sluice=\"env LD_PRELOAD=" HANGING_IO
                              " $sluice\"\n"
                              "$sluice train run.yaml aio.engine=threads watchdog.step=3s");
  EXPECT_EQ(ending.code, kWatchdog) << ending.said;
  const std::string log = text_of("runs/run/train.log");
  EXPECT_THAT(
      log, testing::ContainsRegex("error: the op 'read state segment [0-9]+ chunk [0-9]+' of the "
                                  "program 'step', step 1 has run for [0-9]+ s on the lane "
                                  "nvme-read, runs/run/nvme/sluice-.*.swap: [0-9]+ bytes at "
                                  "offset [0-9]+; watchdog.step allows 3 s"));
  EXPECT_THAT(log, testing::ContainsRegex("\nstacks:\n(.*\n)*nvme io "));
  EXPECT_THAT(log, HasSubstr("hanging_io.so"));
  EXPECT_FALSE(exists("runs/run/final"));
}

/// Where writing one fails the run goes on without it; of this one nobody knows what the kernel
/// still does.
TEST_F(StartAndStop, ARunWhoseCheckpointsNeverGetWrittenIsEnded) {
  const Ending ending = shell("sluice=\"env LD_PRELOAD=" HANGING_IO
                              " $sluice\"\n"
                              "$sluice train run.yaml aio.engine=threads aio.timeout=1s "
                              "checkpoint.every=1 zero_optimization.offload_optimizer.device=cpu");
  EXPECT_EQ(ending.code, kWatchdog) << ending.said;
  EXPECT_THAT(ending.said,
              AllOf(HasSubstr("runs/run/checkpoints/step-1"), HasSubstr("aio.timeout")));
  EXPECT_FALSE(exists("runs/run/final"));
}

/// Both look for a free name before either has made its folder.
TEST_F(StartAndStop, RunsThatStartTogetherCountUp) {
  const Ending ending = shell(
      "for i in 1 2 3; do $sluice train run.yaml > $i.log & pids=\"$pids $!\"; done\n"
      "for pid in $pids; do wait $pid; codes=\"$codes $?\"; done; echo codes$codes");
  EXPECT_THAT(ending.said, HasSubstr("codes 0 0 0\n"));
  for (const char* name : {"run", "run-2", "run-3"}) {
    const std::string run = std::string("runs/") + name;
    EXPECT_TRUE(exists(run + "/final/model.safetensors")) << ending.said;
    EXPECT_THAT(text_of(run + "/metrics.jsonl"),
                AllOf(HasSubstr("\"step\":1,"), HasSubstr("\"step\":2,")));
  }
}

TEST_F(StartAndStop, OfTwoRunsWithOneGivenNameOneIsRefused) {
  const Ending ending = shell(
      "$sluice train run.yaml name=mine & a=$!; $sluice train run.yaml name=mine & b=$!\n"
      "wait $a; x=$?; wait $b; y=$?; echo codes $((x + y)) $((x * y))");
  EXPECT_THAT(ending.said, HasSubstr("codes 2 0\n"));
  EXPECT_THAT(ending.said, AllOf(HasSubstr("runs/mine exists"), HasSubstr("another name")));
  EXPECT_TRUE(exists("runs/mine/final/model.safetensors"));
}

/// The folder appears after the run has looked at the name (it has threads), before it takes it.
TEST_F(StartAndStop, AGivenNameThatIsTakenMeanwhileIsRefused) {
  const Ending ending = bare_shell(
      "for try in 1 2 3 4 5 6 7 8; do\n"
      "  OMP_WAIT_POLICY=passive $sluice train run.yaml name=mine & pid=$!\n"
      "  while kill -0 $pid && [ $(ls /proc/$pid/task | wc -l) -lt 2 ]; do :; done\n"
      "  kill -STOP $pid\n"
      "  [ -d runs/mine ] || { mkdir -p runs/mine; kill -CONT $pid; wait $pid; exit; }\n"
      "  kill -KILL $pid; wait $pid; rm -rf runs/mine  # too late: once more\n"
      "done");
  EXPECT_EQ(ending.code, kConfig) << ending.said;
  EXPECT_THAT(ending.said, AllOf(HasSubstr("runs/mine exists"), HasSubstr("another name")));
  EXPECT_TRUE(fs::is_empty(folder_ / "runs/mine"));
}

TEST_F(StartAndStop, WarningsFromBeforeTheFolderAreInItsLog) {
  const Ending ending = shell("$sluice train run.yaml scheduler.warmup_steps=50 2> err > out");
  EXPECT_EQ(ending.code, 0);
  EXPECT_THAT(text_of("err"), HasSubstr("warning: scheduler.warmup_steps 50"));
  EXPECT_THAT(text_of("out"), AllOf(HasSubstr("step 1/2"), Not(HasSubstr("warning: "))));
  EXPECT_THAT(text_of("runs/run/train.log"),
              AllOf(HasSubstr("warning: scheduler.warmup_steps 50"), HasSubstr("step 1/2")));
}

}  // namespace
}  // namespace sluice::app
