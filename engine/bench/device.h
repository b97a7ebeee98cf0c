/// Which drives a folder lies on, as far as the kernel tells.
///
/// Thread  any
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::bench {

struct Device {
  std::string type;                 ///< of the filesystem, by its mount: "ext4", "nfs4"; or empty
  std::string text;                 ///< for people: name, model, link; or where it is mounted from
  std::vector<std::string> drives;  ///< "nvme0n1": whole ones, sorted; empty: not known
};

/// `number`: stat()'s st_dev. What cannot be read is left out.
Device device_of(std::uint64_t number);

/// Whether both are known to have a drive in common.
bool share_a_drive(const Device& a, const Device& b);

/// Whether files of such a filesystem lie on another machine, or are served by a program.
bool is_remote(const std::string& type);

}  // namespace sluice::bench
