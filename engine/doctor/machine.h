/// What the machine gives a run, and what it withholds. Each looks for itself: what it says is what
/// works, not what should.
///
/// Thread  one at a time
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/doctor/finding.h"
#include "gpu/device.h"

namespace sluice::doctor {

/// Cores that this process may use, and how much of them its cgroups allow. `root` holds proc/ and
/// sys/: a test has its own.
Finding processors(const std::filesystem::path& root = "/");

/// Threads that a run file asks for under this key, beside the cores that they would take turns on.
Finding threads(const std::string& key, unsigned asked, const std::filesystem::path& root = "/");

/// The instructions that it has.
Finding optimizer();

/// Whether products of this type are the processor's own: `lacking` says why not, "" that they are;
/// `remedy` what helps.
Finding products(DType type, const std::string& lacking, const std::string& remedy);

/// What is available, and every limit of a cgroup of this process or above it.
Finding memory(const std::filesystem::path& root = "/");

Finding huge_pages(const std::filesystem::path& root = "/");

/// By locking some.
Finding locked_memory();

/// `ulimit -n` and `ulimit -f`.
std::vector<Finding> file_limits();

/// Missing where it cannot be reached. A test has its own to `ask`.
Finding device(const std::function<gpu::Device()>& ask = gpu::device);

}  // namespace sluice::doctor
