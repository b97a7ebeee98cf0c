#include "engine/bench/fio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

FioJob job(nvme::Engine engine, Traffic traffic) {
  FioJob made;
  made.point = {engine, 1_MiB, 32, traffic};
  made.seconds = 2.5;
  made.ramp_s = 0.5;
  made.size = 64_MiB;
  return made;
}

TEST(FioArguments, OfIoUringHaveRegisteredFilesAndBuffers) {
  EXPECT_THAT(fio_arguments(job(nvme::Engine::kIoUring, Traffic::kRead)),
              ElementsAre("--output-format=json", "--name=read", "--rw=read", "--ioengine=io_uring",
                          "--registerfiles=1", "--iodepth=32", "--fixedbufs=1", "--direct=1",
                          "--bs=1048576", "--size=67108864", "--time_based=1", "--runtime=2500ms",
                          "--ramp_time=500ms", "--overwrite=1", "--refill_buffers=0",
                          "--scramble_buffers=0", "--unlink=1", "--group_reporting=1"));
}

TEST(FioArguments, OfIoUringCanDoWithoutRegisteredBuffers) {
  FioJob ordinary = job(nvme::Engine::kIoUring, Traffic::kRead);
  ordinary.buffers = FioBuffers::kOrdinary;
  EXPECT_THAT(fio_arguments(ordinary), Contains("--registerfiles=1"));
  EXPECT_THAT(fio_arguments(ordinary), Not(Contains("--fixedbufs=1")));
}

TEST(FioArguments, OfMixedAreAJobThatReadsAndOneThatWritesHalfOfTheSizeEach) {
  const std::vector<std::string> all = fio_arguments(job(nvme::Engine::kLibaio, Traffic::kMixed));
  const auto second = std::ranges::find(all, "--name=write");
  ASSERT_NE(second, all.end());
  const std::vector<std::string> read(all.begin(), second);
  const std::vector<std::string> write(second, all.end());
  for (const std::vector<std::string>& one : {read, write}) {
    EXPECT_THAT(one, Contains("--ioengine=libaio"));
    EXPECT_THAT(one, Contains("--iodepth=32"));
    EXPECT_THAT(one, Contains("--size=33554432"));
    EXPECT_THAT(one, Contains("--direct=1"));
    EXPECT_THAT(one, Contains("--new_group=1"));  // else fio adds the two up
  }
  EXPECT_THAT(read, Contains("--rw=read"));
  EXPECT_THAT(write, Contains("--rw=write"));
}

TEST(FioArguments, OfThreadsAreAsManyJobsAsTheDepth) {
  FioJob threads = job(nvme::Engine::kThreads, Traffic::kWrite);
  EXPECT_THAT(fio_arguments(threads), Contains("--ioengine=psync"));
  EXPECT_THAT(fio_arguments(threads), Contains("--numjobs=32"));
  EXPECT_THAT(fio_arguments(threads), Contains("--size=2097152"));
  threads.point.depth = 3;  // whole blocks
  EXPECT_THAT(fio_arguments(threads), Contains("--numjobs=3"));
  EXPECT_THAT(fio_arguments(threads), Contains("--size=22020096"));
}

TEST(FioArguments, IntoNewFilesAreWrittenOnceAndSynced) {
  FioJob once = job(nvme::Engine::kIoUring, Traffic::kWrite);
  once.into_new_files = true;
  const std::vector<std::string> all = fio_arguments(once);
  EXPECT_THAT(all, Contains("--fallocate=native"));
  EXPECT_THAT(all, Contains("--end_fsync=1"));
  EXPECT_THAT(all, Not(Contains("--overwrite=1")));
  EXPECT_THAT(all, Not(Contains("--time_based=1")));
}

TEST(FioArguments, RefuseASizeBelowABlock) {
  FioJob small = job(nvme::Engine::kThreads, Traffic::kMixed);
  small.size = 15_MiB;
  test::expect_error(Errc::kConfig, {"15.0 MiB", "1.0 MiB"}, [&] { fio_arguments(small); });
}

// As fio 3.33 prints it, without what is not read. Notes may come first.
constexpr const char* kRecorded = R"(note: both iodepth >= 1 and synchronous I/O engine are selected
{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "read", "groupid" : 0, "error" : 0,
      "read" : {
        "io_bytes" : 4000000000, "bw_bytes" : 2000000000, "runtime" : 2000,
        "clat_ns" : { "min" : 1, "N" : 4000,
          "percentile" : { "50.000000" : 15000000, "99.000000" : 20000000,
                           "99.900000" : 30000000, "99.990000" : 99000000 } } },
      "write" : { "io_bytes" : 0, "bw_bytes" : 0, "runtime" : 0, "clat_ns" : { "min" : 0, "N" : 0 } },
      "job_runtime" : 2000, "usr_cpu" : 5.0, "sys_cpu" : 15.0
    },
    {
      "jobname" : "write", "groupid" : 1, "error" : 0,
      "read" : { "io_bytes" : 0, "bw_bytes" : 0, "runtime" : 0, "clat_ns" : { "min" : 0, "N" : 0 } },
      "write" : {
        "io_bytes" : 1000000000, "bw_bytes" : 500000000, "runtime" : 2010,
        "clat_ns" : { "min" : 1, "N" : 1000,
          "percentile" : { "50.000000" : 40000000, "99.000000" : 50000000,
                           "99.900000" : 60000000 } } },
      "job_runtime" : 4000, "usr_cpu" : 2.5, "sys_cpu" : 12.5
    }
  ]
})";

TEST(FioOutput, BecomesWhatWeMeasureOurselves) {
  const Point point{nvme::Engine::kIoUring, 1_MiB, 32, Traffic::kMixed};
  const Measured m = measured_by_fio(kRecorded, point);
  EXPECT_EQ(m.point, point);
  EXPECT_EQ(m.read_bytes, 4'000'000'000U);
  EXPECT_EQ(m.written_bytes, 1'000'000'000U);
  EXPECT_DOUBLE_EQ(m.read_rate, 2e9);
  EXPECT_DOUBLE_EQ(m.write_rate, 0.5e9);
  EXPECT_DOUBLE_EQ(m.seconds, 2.01);
  EXPECT_DOUBLE_EQ(m.read_latency.p50_s, 0.015);
  EXPECT_DOUBLE_EQ(m.read_latency.p99_s, 0.020);
  EXPECT_DOUBLE_EQ(m.read_latency.p999_s, 0.030);
  EXPECT_DOUBLE_EQ(m.write_latency.p50_s, 0.040);
  EXPECT_DOUBLE_EQ(m.write_latency.p999_s, 0.060);
  // 20 % of 2 s and 15 % of 4 s, for 5 GB
  EXPECT_DOUBLE_EQ(m.cpu_s_per_gb, 0.2);
  EXPECT_EQ(m.verified_bytes, 0U);
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  return text.replace(text.find(what), what.size(), with);
}

TEST(FioOutput, IsRefusedWhenAJobFailedOrItIsSomethingElse) {
  const std::string failed = replaced(kRecorded, "\"error\" : 0", "\"error\" : 28");
  test::expect_error(Errc::kIo, {"job read", "No space left"},
                     [&] { measured_by_fio(failed, {}); });
  for (const std::string& other :
       {std::string(), std::string("fio: unknown"), std::string("{}"), std::string("{\"jobs\": 3}"),
        replaced(kRecorded, "job_runtime", "gone"), replaced(kRecorded, "99.900000", "99.9")}) {
    test::expect_error(Errc::kFormat, {"fio: not the JSON"}, [&] { measured_by_fio(other, {}); });
  }
  test::expect_error(Errc::kIo, {"moved nothing"}, [] { measured_by_fio("{\"jobs\": []}", {}); });
}

/// Another PATH while it lives.
class Path {
 public:
  explicit Path(const std::string& folders) : old_(::getenv("PATH")) {
    ::setenv("PATH", folders.c_str(), 1);
  }
  ~Path() { ::setenv("PATH", old_.c_str(), 1); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  const std::string& old() const { return old_; }

 private:
  std::string old_;
};

const std::atomic<int> kNoStop{0};

/// Of a process; one that has ended and was not collected runs no more.
bool runs(const std::string& status) {
  std::ifstream file(status);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return !text.empty() && text.find("State:\tZ") == std::string::npos;
}

/// A fio that does what a script says.
void install(const test::TempFolder& folder, const std::string& script) {
  folder.write("bin/fio", "#!/bin/sh\n" + script);
  std::filesystem::permissions(folder / "bin/fio", std::filesystem::perms::owner_all);
}

TEST(Fio, ThatIsNotInstalledIsNamedWithTheWayToInstallIt) {
  const test::TempFolder folder;
  const Path empty(folder / "bin");
  test::expect_error(Errc::kEnv, {"fio is not installed", "scripts/install.sh fio"}, [&] {
    run_fio(job(nvme::Engine::kIoUring, Traffic::kRead), folder / "drive", kNoStop);
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder / "drive"));
}

TEST(Fio, ThatFailsIsQuotedAndLeavesNothing) {
  const test::TempFolder folder;
  install(folder, "echo 'laying out'; echo 'no room on device' >&2; touch left; exit 3\n");
  const Path path((folder / "bin") + ":" + ::getenv("PATH"));
  test::expect_error(Errc::kIo, {"exit code 3", "no room on device", "laying out"}, [&] {
    run_fio(job(nvme::Engine::kIoUring, Traffic::kRead), folder / "drive", kNoStop);
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder / "drive"));
}

TEST(Fio, IsEndedByAStopSignalWithAllThatItStarted) {
  const test::TempFolder folder;
  install(folder, "sleep 1000 &\necho $! >" + (folder / "child") + "\nkill -TERM $PPID\nwait\n");
  const Path path((folder / "bin") + ":" + ::getenv("PATH"));
  static std::atomic<int> stop;
  stop = 0;
  const auto old = std::signal(SIGTERM, [](int number) { stop = number; });
  EXPECT_FALSE(run_fio(job(nvme::Engine::kIoUring, Traffic::kRead), folder / "drive", stop));
  std::signal(SIGTERM, old);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "drive"));
  const std::string status = "/proc/" + std::to_string(std::stoi(folder.read("child"))) + "/status";
  // Nobody may be there to collect it.
  for (int i = 0; i < 1000 && runs(status); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(runs(status));
}

TEST(Fio, ThatMayNotRegisterItsBuffersRunsWithoutThem) {
  const test::TempFolder folder;
  folder.write("recorded", kRecorded);
  install(folder,
          "case \"$*\" in *fixedbufs*) echo 'func=io_queue_init, error=Cannot allocate memory' >&2;"
          " exit 1;; esac\ncat " +
              (folder / "recorded") + "\n");
  const Path path((folder / "bin") + ":" + ::getenv("PATH"));
  const FioJob mixed = job(nvme::Engine::kIoUring, Traffic::kMixed);
  EXPECT_DOUBLE_EQ(run_fio(mixed, folder / "drive", kNoStop)->read_rate, 2e9);
}

TEST(Fio, GetsItsArgumentsUnchangedAndInItsOwnFolder) {
  const test::TempFolder folder;
  folder.write("recorded", kRecorded);
  install(folder, "pwd >" + (folder / "seen") + "\nprintf '%s\\n' \"$@\" >>" + (folder / "seen") +
                      "\ncat " + (folder / "recorded") + "\n");
  const Path path((folder / "bin") + ":" + ::getenv("PATH"));
  const FioJob mixed = job(nvme::Engine::kIoUring, Traffic::kMixed);
  EXPECT_DOUBLE_EQ(run_fio(mixed, folder / "a drive", kNoStop)->read_rate, 2e9);
  const std::string seen = folder.read("seen");
  EXPECT_THAT(seen, HasSubstr((folder / "a drive") + "/sluice-fio-"));
  for (const std::string& argument : fio_arguments(mixed)) {
    EXPECT_THAT(seen, HasSubstr("\n" + argument + "\n"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "a drive"));
}

TEST(Fio, RunsEachEngineAndTraffic) {
  if (std::system("fio --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "fio is not installed";
  const test::TempFolder folder(SOURCE_DIR);
  for (const nvme::Engine engine :
       {nvme::Engine::kIoUring, nvme::Engine::kLibaio, nvme::Engine::kThreads}) {
    for (const Traffic traffic : {Traffic::kRead, Traffic::kWrite, Traffic::kMixed}) {
      FioJob small = job(engine, traffic);
      small.point.depth = 4;
      small.seconds = 0.4;
      small.ramp_s = 0.1;
      const Measured m = run_fio(small, folder.path(), kNoStop).value();
      EXPECT_EQ(m.read_rate > 0, traffic != Traffic::kWrite);
      EXPECT_EQ(m.write_rate > 0, traffic != Traffic::kRead);
      EXPECT_EQ(m.read_latency.p99_s > 0, traffic != Traffic::kWrite);
      EXPECT_EQ(m.write_latency.p99_s > 0, traffic != Traffic::kRead);
      EXPECT_GT(m.seconds, 0.3);
      EXPECT_GE(m.cpu_s_per_gb, 0);  // fio counts ticks: of so short a run there may be none
    }
  }
  FioJob once = job(nvme::Engine::kIoUring, Traffic::kWrite);
  once.into_new_files = true;
  EXPECT_EQ(run_fio(once, folder.path(), kNoStop)->written_bytes, once.size);
  EXPECT_TRUE(folder.empty());
}

}  // namespace
}  // namespace sluice::bench
