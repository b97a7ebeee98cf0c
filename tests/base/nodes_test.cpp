#include "engine/base/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "engine/base/pages.h"

namespace sluice {
namespace {

/// How the kernel says that a mapping's pages are placed: "default", "interleave:0-1"; none where
/// it does not.
std::string policy_of(const std::byte* data) {
  std::ifstream maps("/proc/thread-self/numa_maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream text(line);
    std::uintptr_t begin = 0;
    std::string policy;
    text >> std::hex >> begin >> policy;
    if (begin == reinterpret_cast<std::uintptr_t>(data)) return policy;
  }
  return {};
}

bool may_set_policies() {
  return syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0 &&
         std::ifstream("/proc/thread-self/numa_maps").good();
}

#define SKIP_WITHOUT_POLICIES() \
  if (!may_set_policies()) GTEST_SKIP() << "no memory policies in this kernel or container"

TEST(Nodes, HaveTheLargePagesByTurns) {
  SKIP_WITHOUT_POLICIES();
  const PageBytes small = take_pages(kAlignment), large = take_pages(8_MiB);
  EXPECT_THAT(policy_of(large.get()), testing::StartsWith("interleave:"));
  EXPECT_THAT(policy_of(small.get()), testing::Not(testing::StartsWith("interleave:")));
}

/// By the system's tree of a processor: a link to its node.
std::string node_of(std::size_t processor) {
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(processor);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node")) return name.substr(4);
  }
  return "0";
}

TEST(Nodes, AreThoseThatTheThreadMayRunOn) {
  SKIP_WITHOUT_POLICIES();
  const auto processor = static_cast<std::size_t>(sched_getcpu());
  std::string policy;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    policy = policy_of(take_pages(8_MiB).get());
  }).join();
  EXPECT_EQ(policy, "interleave:" + node_of(processor));
}

TEST(Nodes, AreWhoseTheUserSays) {
  SKIP_WITHOUT_POLICIES();
  std::string policy;
  std::thread([&] {  // a policy is a thread's
    const unsigned long first = 1;
    ASSERT_EQ(syscall(SYS_set_mempolicy, MPOL_PREFERRED, &first, 8 * sizeof first), 0);
    policy = policy_of(take_pages(8_MiB).get());
  })
      .join();
  EXPECT_THAT(policy, testing::StartsWith("prefer"));
}

}  // namespace
}  // namespace sluice
