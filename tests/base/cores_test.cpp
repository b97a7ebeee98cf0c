#include "engine/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>
#include <thread>

#include "engine/base/machine.h"
#include "tests/support/temp_folder.h"

namespace sluice {
namespace {

using test::TempFolder;

/// A machine as its files tell it. Its quotas are beside this machine's own affinity.
class CoresTest : public testing::Test {
 protected:
  void group(const std::string& file, const std::string& text) const {
    tree_.write("sys/fs/cgroup/" + file, text + "\n");
  }
  void member_of(const std::string& lines) const { tree_.write("proc/self/cgroup", lines); }
  Cores look() const { return cores(tree_.path()); }

  TempFolder tree_;
};

TEST_F(CoresTest, WithoutAQuotaAreThoseOfTheAffinityMask) {
  EXPECT_FALSE(look().quota);
  EXPECT_EQ(look().threads(), look().usable);
  member_of("3:cpuset:/\n0::/jobs\n");
  group("jobs/cpu.max", "max 100000");
  EXPECT_FALSE(look().quota);
}

TEST_F(CoresTest, FollowTheMaskOfThisThread) {
  unsigned usable = 0;
  std::jthread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &mask);
    ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
    usable = look().usable;
  }).join();
  EXPECT_EQ(usable, 1U);
  EXPECT_GE(look().usable, usable);
}

TEST_F(CoresTest, TheLeastQuotaFromThisGroupUpwardsCounts) {
  member_of("0::/jobs/mine\n");
  group("jobs/mine/cpu.max", "90000 100000");
  group("jobs/cpu.max", "50000 100000");
  group("cpu.max", "70000 100000");
  const Cores found = look();
  ASSERT_TRUE(found.quota);
  EXPECT_DOUBLE_EQ(found.quota->cores, 0.5);
  EXPECT_EQ(found.quota->group, "/jobs");
  EXPECT_EQ(found.quota->file, "cpu.max");
  EXPECT_EQ(found.threads(), 1U);
}

TEST_F(CoresTest, Version1HasQuotaAndPeriodInFilesOfTheirOwn) {
  member_of("4:cpu,cpuacct:/a/b\n");
  group("cpu/a/b/cpu.cfs_quota_us", "-1");
  group("cpu/a/b/cpu.cfs_period_us", "100000");
  EXPECT_FALSE(look().quota);
  group("cpu/a/cpu.cfs_quota_us", "5000");
  group("cpu/a/cpu.cfs_period_us", "20000");
  const Cores found = look();
  ASSERT_TRUE(found.quota);
  EXPECT_DOUBLE_EQ(found.quota->cores, 0.25);
  EXPECT_EQ(found.quota->group, "/a");
  EXPECT_EQ(found.quota->file, "cpu.cfs_quota_us");
}

TEST_F(CoresTest, AQuotaOfMoreThanThereIsHoldsNobodyBack) {
  member_of("0::/jobs\n");
  group("jobs/cpu.max", std::to_string(look().usable * 100000) + " 100000");
  EXPECT_FALSE(look().quota);
}

TEST_F(CoresTest, FilesThatMakeNoSenseSayNothing) {
  member_of("0::/jobs\n");
  for (const char* text : {"", "50000", "x y", "0 100000", "-5 100000", "50000 0"}) {
    group("jobs/cpu.max", text);
    EXPECT_FALSE(look().quota) << text;
  }
}

TEST(Quota, BecomesTheNearestNumberOfThreadsAndOneAtLeast) {
  const auto threads_of = [](double quota) {
    return Cores{8, CpuQuota{quota, "/", "cpu.max"}}.threads();
  };
  EXPECT_EQ(threads_of(0.01), 1U);
  EXPECT_EQ(threads_of(0.5), 1U);
  EXPECT_EQ(threads_of(1.4), 1U);
  EXPECT_EQ(threads_of(1.5), 2U);
  EXPECT_EQ(threads_of(1.6), 2U);
  EXPECT_EQ(threads_of(2.5), 3U);
  EXPECT_EQ(threads_of(3), 3U);
  EXPECT_EQ(threads_of(7.9), 8U);
}

TEST(LastCache, IsTheSumOfThoseThatThereAre) {
  const TempFolder root;
  EXPECT_EQ(last_cache(root.path()), 0) << "not known";
  const auto cpu = [&](int number, const char* size, const char* sharers) {
    const std::string cache =
        "sys/devices/system/cpu/cpu" + std::to_string(number) + "/cache/index3/";
    root.write(cache + "size", size);
    root.write(cache + "shared_cpu_list", sharers);
  };
  cpu(0, "32768K", "0-1");
  cpu(1, "32768K", "0-1");
  EXPECT_EQ(last_cache(root.path()), 32_MiB);
  cpu(2, "16384K", "2");
  EXPECT_EQ(last_cache(root.path()), 48_MiB);
  std::filesystem::create_directories(root.path() + "/sys/devices/system/cpu/cpufreq");
  EXPECT_EQ(last_cache(root.path()), 48_MiB);
}

}  // namespace
}  // namespace sluice
