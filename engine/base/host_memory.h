/// How much host memory this process can still take: of the machine, and of the cgroups it is in.
#pragma once

#include <string>
#include <vector>

#include "engine/base/nodes.h"
#include "engine/base/units.h"

namespace sluice {

struct HostMemory {
  Bytes available = 0;  ///< without swapping, and before a cgroup kills or throttles anybody
  std::string whose;    ///< who has no more: "this machine", a cgroup and its limit, or nodes
  std::vector<std::string> limits = {};  ///< every cgroup's from this process upwards, and nodes
};

/// The least of MemAvailable, of what every cgroup from this process upwards leaves, versions 1 and
/// 2, and of what is free of `nodes`, if the machine has others; cached file pages count as free.
/// `root` holds proc/ and sys/: a test has its own.
///
/// Throws  kEnv when /proc/meminfo does not say
HostMemory host_memory(const std::string& root = "/",
                       const std::vector<unsigned>& nodes = memory_nodes());

}  // namespace sluice
