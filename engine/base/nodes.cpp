#include "engine/base/nodes.h"

#include <numa.h>
#include <numaif.h>

#include <memory>

namespace sluice {
namespace {

struct FreeMask {
  void operator()(bitmask* mask) const noexcept { numa_bitmask_free(mask); }
};
using Mask = std::unique_ptr<bitmask, FreeMask>;

bool has_policy() noexcept {
  int mode = MPOL_DEFAULT;
  return get_mempolicy(&mode, nullptr, 0, nullptr, 0) != 0 || mode != MPOL_DEFAULT;
}

/// Of those that this thread may run on those that it may take memory from.
Mask own_nodes() noexcept {
  Mask nodes(numa_get_run_node_mask());
  const Mask memory(numa_get_mems_allowed());
  for (unsigned node = 0; node < nodes->size; ++node) {
    if (numa_bitmask_isbitset(memory.get(), node) == 0) numa_bitmask_clearbit(nodes.get(), node);
  }
  return nodes;
}

}  // namespace

std::vector<unsigned> memory_nodes() {
  std::vector<unsigned> nodes;
  if (numa_available() < 0) return nodes;
  const Mask mask(numa_get_membind());
  for (unsigned node = 0; node < mask->size; ++node) {
    if (numa_bitmask_isbitset(mask.get(), node) != 0) nodes.push_back(node);
  }
  return nodes;
}

void spread_over_nodes(std::byte* data, Bytes n) noexcept {
  if (numa_available() < 0 || has_policy()) return;
  const Mask nodes = own_nodes();
  // The kernel counts one bit less than it is told of.
  mbind(data, n, MPOL_INTERLEAVE, nodes->maskp, nodes->size + 1, 0);
}

}  // namespace sluice
