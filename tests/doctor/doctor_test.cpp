#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "engine/base/cores.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/doctor/drives.h"
#include "engine/doctor/finding.h"
#include "engine/doctor/machine.h"
#include "nvme/filesystem.h"
#include "tests/support/temp_folder.h"

namespace sluice::doctor {
namespace {

using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A machine as its files tell it.
class Machine : public testing::Test {
 protected:
  Machine() { tree_.write("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"); }
  void group(const std::string& file, const std::string& text) const {
    tree_.write("sys/fs/cgroup/" + file, text + "\n");
  }
  void member_of(const std::string& lines) const { tree_.write("proc/self/cgroup", lines); }

  TempFolder tree_;
};

TEST_F(Machine, ProcessorsAreLessWhereACgroupAllowsPartOfThem) {
  EXPECT_EQ(processors(tree_.path()).verdict, Verdict::kOk);
  member_of("0::/jobs/mine\n");
  group("jobs/mine/cpu.max", "max 100000");
  EXPECT_EQ(processors(tree_.path()).verdict, Verdict::kOk);
  group("jobs/cpu.max", "50000 100000");
  const Finding f = processors(tree_.path());
  EXPECT_EQ(f.verdict, Verdict::kLess);
  EXPECT_THAT(f.found, HasSubstr("of which the cgroup /jobs allows 0.5"));
  EXPECT_THAT(f.fix, AllOf(HasSubstr("raise cpu.max"), HasSubstr("cpu_adam.threads are 1:"),
                           HasSubstr("the run is stopped")));
}

TEST_F(Machine, AQuotaOfVersion1IsCalledByTheNameOfItsFile) {
  member_of("4:cpu,cpuacct:/a\n");
  group("cpu/a/cpu.cfs_quota_us", "25000");
  group("cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_THAT(processors(tree_.path()).fix, HasSubstr("raise cpu.cfs_quota_us"));
}

TEST_F(Machine, AQuotaOfWholeCoresStopsOnlyThoseWhoTakeMore) {
  if (cores().usable < 2) GTEST_SKIP() << "a quota of a whole core is none here";
  member_of("0::/jobs\n");
  group("jobs/cpu.max", "100000 100000");
  EXPECT_THAT(processors(tree_.path()).fix,
              HasSubstr("cpu_adam.threads are 1: more would be stopped"));
}

TEST_F(Machine, ThreadsAreLessWhereTheyTakeTurnsOnACore) {
  member_of("0::/jobs\n");
  group("jobs/cpu.max", "50000 100000");
  EXPECT_EQ(threads("cpu_adam.threads", 1, tree_.path()).verdict, Verdict::kOk);
  const Finding f = threads("cpu_adam.threads", 2, tree_.path());
  EXPECT_EQ(f.verdict, Verdict::kLess);
  EXPECT_EQ(f.subject, "cpu_adam.threads");
  EXPECT_EQ(f.found, "2 threads on 1 core");
  EXPECT_THAT(f.fix, HasSubstr("wait for each other: 1 or auto"));
}

TEST(Products, AreLessWhereTheProcessorHasNoneOfTheirOwn) {
  EXPECT_EQ(products(DType::kBf16, "", "").verdict, Verdict::kOk);
  const Finding f = products(DType::kF16, "this processor has none", "unset it");
  EXPECT_EQ(f.verdict, Verdict::kLess);
  EXPECT_EQ(f.subject, "fp16");
  EXPECT_EQ(f.found, "this processor has none");
  EXPECT_THAT(f.fix, HasSubstr("about as fast as with precision.compute: fp32; unset it"));
}

TEST_F(Machine, MemorySaysEveryLimitAboveUsAndWhichOneCounts) {
  EXPECT_THAT(memory(tree_.path()).found, HasSubstr("16.0 GiB available, no cgroup limits it"));
  member_of("0::/a/b\n");
  group("a/b/memory.max", "max");
  group("a/memory.max", std::to_string(64_GiB));
  group("a/memory.current", "0");
  Finding f = memory(tree_.path());
  EXPECT_EQ(f.verdict, Verdict::kOk);
  EXPECT_THAT(f.found, HasSubstr("limited by the cgroup /a (memory.max 64.0 GiB)"));
  group("a/b/memory.high", std::to_string(1_GiB));
  group("a/b/memory.current", "0");
  f = memory(tree_.path());
  EXPECT_EQ(f.verdict, Verdict::kLess);
  EXPECT_THAT(f.found, AllOf(HasSubstr("1.0 GiB available"),
                             HasSubstr("/a/b (memory.high 1.0 GiB), the cgroup /a (memory.max")));
  EXPECT_THAT(f.fix, HasSubstr("/a/b (memory.high 1.0 GiB) is what a run gets"));
}

/// Version 1 has no word for "no limit".
TEST_F(Machine, ALimitThatIsNoneIsNotListed) {
  member_of("4:memory:/a\n");
  group("memory/a/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_THAT(memory(tree_.path()).found, HasSubstr("no cgroup limits it"));
}

TEST_F(Machine, HugePagesAreLessWhereTheKernelNeverGivesThem) {
  const std::string file = "sys/kernel/mm/transparent_hugepage/enabled";
  tree_.write(file, "always [madvise] never\n");
  EXPECT_EQ(huge_pages(tree_.path()).verdict, Verdict::kOk);
  tree_.write(file, "always madvise [never]\n");
  const Finding f = huge_pages(tree_.path());
  EXPECT_EQ(f.verdict, Verdict::kLess);
  EXPECT_THAT(f.fix, HasSubstr("echo madvise >"));
}

/// Of a resource, for as long as this lives.
class SoftLimit {
 public:
  SoftLimit(int resource, rlim_t value) : resource_(resource) {
    ::getrlimit(static_cast<__rlimit_resource_t>(resource_), &before_);
    const rlimit now{value, before_.rlim_max};
    ::setrlimit(static_cast<__rlimit_resource_t>(resource_), &now);
  }
  ~SoftLimit() { ::setrlimit(static_cast<__rlimit_resource_t>(resource_), &before_); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;

 private:
  int resource_;
  rlimit before_{};
};

TEST(Limits, OfFilesAreSaidWithWhatRaisesThem) {
  const SoftLimit files(RLIMIT_NOFILE, 100), size(RLIMIT_FSIZE, 1_GiB);
  const std::vector<Finding> found = file_limits();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].verdict, Verdict::kLess);
  EXPECT_THAT(found[0].fix, HasSubstr("ulimit -n"));
  EXPECT_EQ(found[1].verdict, Verdict::kLess);
  EXPECT_EQ(found[1].found, "1.0 GiB");
}

TEST(Limits, MemoryThatCannotBeLockedIsNoticedByLockingSome) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may lock what it likes";
  const SoftLimit locked(RLIMIT_MEMLOCK, 1_MiB);
  const Finding f = locked_memory();
  EXPECT_EQ(f.verdict, Verdict::kLess);
  EXPECT_THAT(f.found, HasSubstr("1.0 MiB: 64.0 MiB could not"));
}

TEST(Device, ThatCannotBeReachedIsMissingForTheReasonItGives) {
  const Finding f = device([]() -> gpu::Device { throw Error(Errc::kDevice, "no driver"); });
  EXPECT_EQ(f.verdict, Verdict::kMissing);
  EXPECT_THAT(f.found, HasSubstr("no driver"));
  EXPECT_THAT(f.fix, Not(IsEmpty()));
  EXPECT_EQ(device([] { return gpu::Device{"card", 1_GiB, false}; }).verdict, Verdict::kOk);
}

TEST(Folder, ThatIsNotThereYetIsJudgedByItsParentAndNothingIsLeft) {
  const TempFolder folder;
  const Finding f = doctor::folder("output_dir", folder / "a/b", Holds::kFiles);
  EXPECT_EQ(f.verdict, Verdict::kOk) << f.found;
  EXPECT_THAT(f.found, AllOf(HasSubstr(folder / "a/b"), HasSubstr("free"), HasSubstr("O_DIRECT")));
  EXPECT_TRUE(folder.empty());
}

TEST(Folder, InMemoryIsMissingForATier) {
  const std::string ram = "/dev/shm";
  if (::access(ram.c_str(), W_OK) != 0 || nvme::filesystem_of(ram).medium != nvme::Medium::kRam) {
    GTEST_SKIP() << "no folder in memory here";
  }
  const Finding tier = doctor::folder("tiers.nvme.paths", ram, Holds::kTier);
  EXPECT_EQ(tier.verdict, Verdict::kMissing);
  EXPECT_THAT(tier.fix, HasSubstr("tiers.nvme.allow_ram_path"));
  EXPECT_EQ(doctor::folder("output_dir", ram, Holds::kFiles).verdict, Verdict::kOk);
}

TEST(Folder, ThatIsAFileIsMissing) {
  const TempFolder folder;
  folder.write("file", "");
  const Finding f = doctor::folder("output_dir", folder / "file/below", Holds::kFiles);
  EXPECT_EQ(f.verdict, Verdict::kMissing);
  EXPECT_THAT(f.fix, Not(IsEmpty()));
}

TEST(Engines, ThreadsWorkEverywhere) {
  const std::vector<Finding> found = engines();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[2].subject, "threads");
  EXPECT_EQ(found[2].verdict, Verdict::kOk);
  for (const Finding& f : found) EXPECT_EQ(f.verdict == Verdict::kOk, f.fix.empty()) << f.subject;
}

TEST(Table, HasAColumnOfSubjectsAndTheFixBelow) {
  const std::vector<Finding> findings = {{Verdict::kOk, "memory", "16 GiB", ""},
                                         {Verdict::kLess, "a", "none", "do this"}};
  EXPECT_EQ(table(findings),
            "ok       memory  16 GiB\n"
            "less     a       none\n"
            "                 -> do this\n");
  EXPECT_FALSE(any_missing(findings));
  EXPECT_TRUE(any_missing(std::vector<Finding>{{Verdict::kMissing, "", "", ""}}));
}

}  // namespace
}  // namespace sluice::doctor
