/// Where the threads of this process are.
#pragma once

#include <string>

namespace sluice {

/// Of every other thread: its name, and the functions that it is in, innermost first. Threads of
/// one name that are at the same place stand together. Each is asked by a signal (SIGRTMIN + 1),
/// which system calls that are not restarted see as EINTR. One that does not answer within a
/// second, because the kernel holds it, is told with its state and where the kernel has it.
///
/// Thread  any, one at a time
std::string stacks_of_threads();

}  // namespace sluice
