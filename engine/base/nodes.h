/// Memory of machines whose processors have controllers each: their nodes. libnuma, and nothing
/// else.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/base/units.h"

namespace sluice {

/// Those that this thread may take memory from: of its cpuset, and of a policy that binds it
/// (numactl --membind). Empty: the kernel does not say.
std::vector<unsigned> memory_nodes();

/// Of these whole pages, none touched yet, one after the other will lie on the next of the nodes
/// that this thread may run on and take memory from. For what any thread works on any part of: then
/// all controllers serve each piece of it. Where a policy was given (numactl) it stays, and where
/// the kernel refuses (a container), a page lies where the thread is that touches it.
void spread_over_nodes(std::byte* data, Bytes n) noexcept;

}  // namespace sluice
