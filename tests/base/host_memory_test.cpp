#include "engine/base/host_memory.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice {
namespace {

using test::error_of;
using test::TempFolder;

/// A machine as its files tell it: 16 GiB available, and the cgroups that a test adds.
class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() { write("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"); }

  void write(const std::string& name, const std::string& text) const { tree_.write(name, text); }
  /// Sizes in MiB; `max` and `high` as the kernel writes them.
  void group(const std::string& name, const std::string& max, const std::string& high, Bytes used,
             Bytes cached) const {
    const std::string folder = "sys/fs/cgroup" + name;
    write(folder + "/memory.max", max + "\n");
    write(folder + "/memory.high", high + "\n");
    write(folder + "/memory.current", std::to_string(used << 20) + "\n");
    write(folder + "/memory.stat",
          "anon 1\nfile 2\ninactive_file " + std::to_string(cached << 20) + "\nactive_file 4096\n");
  }
  HostMemory look(const std::vector<unsigned>& nodes = {}) const {
    return host_memory(tree_.path(), nodes);
  }

  TempFolder tree_;
};

std::string mib(Bytes n) {
  return std::to_string(n << 20);
}

TEST_F(HostMemoryTest, WithoutCgroupsIsWhatTheKernelCallsAvailable) {
  EXPECT_EQ(look().available, 16_GiB);
  EXPECT_EQ(look().whose, "this machine");
  write("proc/self/cgroup", "3:cpu:/\n0::/\n");
  EXPECT_EQ(look().available, 16_GiB);
}

TEST_F(HostMemoryTest, IsNoMoreThanTheCgroupLeavesAndCachedFilesCountAsFree) {
  write("proc/self/cgroup", "0::/jobs/mine\n");
  group("/jobs/mine", mib(2048), "max", 512, 128);
  EXPECT_EQ(look().available, 2048_MiB - 384_MiB);
  EXPECT_EQ(look().whose, "the cgroup /jobs/mine (memory.max 2.0 GiB)");
}

TEST_F(HostMemoryTest, IsNoMoreThanItsNodesHaveWhereThereAreOthers) {
  const auto node = [this](int number, Bytes total, Bytes free, Bytes cached) {
    const auto line = [number](const char* what, Bytes mib) {
      return "Node " + std::to_string(number) + " " + what + " " + std::to_string(mib << 10) +
             " kB\n";
    };
    write("sys/devices/system/node/node" + std::to_string(number) + "/meminfo",
          line("MemTotal:", total) + line("MemFree:", free) + line("Inactive(file):", cached));
  };
  node(0, 16384, 6000, 144);
  node(1, 0, 0, 0);  // only processors
  EXPECT_EQ(look({0}).whose, "this machine") << "it has no others";
  node(10, 16384, 9000, 0);
  EXPECT_EQ(look({0}).available, 6144_MiB);
  EXPECT_EQ(look({0}).whose, "the memory nodes of this process (0)");
  EXPECT_EQ(look({0}).limits, std::vector<std::string>{look({0}).whose});
  EXPECT_EQ(look({10}).available, 9000_MiB);
  EXPECT_EQ(look({0, 10}).whose, "this machine");
  EXPECT_EQ(look({}).whose, "this machine") << "the kernel does not say";
  write("proc/self/cgroup", "0::/jobs\n");
  group("/jobs", mib(1024), "max", 24, 0);
  EXPECT_EQ(look({0}).available, 1000_MiB) << "the cgroup has less";
  EXPECT_EQ(look({0}).limits.size(), 2U);
}

TEST_F(HostMemoryTest, HighCountsLikeMaxBecauseItThrottles) {
  write("proc/self/cgroup", "0::/jobs\n");
  group("/jobs", mib(4096), mib(1024), 24, 0);
  EXPECT_EQ(look().available, 1000_MiB);
  EXPECT_EQ(look().whose, "the cgroup /jobs (memory.high 1.0 GiB)");
}

TEST_F(HostMemoryTest, EveryCgroupUpwardsCounts) {
  write("proc/self/cgroup", "0::/a/b/c\n");
  group("/a/b/c", "max", "max", 10, 0);
  group("/a", mib(3000), "max", 1000, 0);
  EXPECT_EQ(look().available, 2000_MiB);
  EXPECT_EQ(look().whose, "the cgroup /a (memory.max 2.9 GiB)");
}

TEST_F(HostMemoryTest, ACgroupThatIsFullLeavesNothing) {
  write("proc/self/cgroup", "0::/full\n");
  group("/full", mib(100), "max", 130, 10);
  EXPECT_EQ(look().available, 0U);
}

TEST_F(HostMemoryTest, InAContainerTheMountIsItsCgroupWhateverThePathSays) {
  group("", mib(1000), "max", 100, 0);
  for (const char* path : {"0::/\n", "0::/../../host/job\n", "0::/docker/0123abcd\n"}) {
    write("proc/self/cgroup", path);
    EXPECT_EQ(look().available, 900_MiB) << path;
  }
}

TEST_F(HostMemoryTest, VersionOneCountsToo) {
  write("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:pids,memory:/job\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", mib(1) + "\n");
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", mib(1) + "\n");
  const std::string folder = "sys/fs/cgroup/memory/job/";
  write(folder + "memory.limit_in_bytes", mib(1024) + "\n");
  write(folder + "memory.usage_in_bytes", mib(600) + "\n");
  write(folder + "memory.stat", "inactive_file 1\ntotal_inactive_file " + mib(88) + "\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", mib(9000) + "\n");
  EXPECT_EQ(look().available, 512_MiB);
  EXPECT_EQ(look().whose, "the cgroup /job (memory.limit_in_bytes 1.0 GiB)");
}

TEST_F(HostMemoryTest, AKernelThatDoesNotSayIsAnError) {
  write("proc/meminfo", "MemTotal: 33554432 kB\n");
  EXPECT_EQ(error_of([&] { look(); }).code, Errc::kEnv);
}

TEST(HostMemory, OfThisMachineIsSomething) {
  EXPECT_GT(host_memory().available, 0U);
}

}  // namespace
}  // namespace sluice
