#include "nvme/filesystem.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"

namespace sluice::nvme {
namespace {

struct KnownType {
  std::uint64_t magic;
  std::string_view name;
  Medium medium;
};

constexpr std::array kKnownTypes{
    KnownType{0x01021994, "tmpfs", Medium::kRam},
    KnownType{0x858458f6, "ramfs", Medium::kRam},
    KnownType{0x958458f6, "hugetlbfs", Medium::kRam},
    KnownType{0xef53, "ext4", Medium::kDrive},
    KnownType{0x58465342, "xfs", Medium::kDrive},
    KnownType{0x9123683e, "btrfs", Medium::kDrive},
    KnownType{0x2fc12fc1, "zfs", Medium::kDrive},
    KnownType{0xf2f52010, "f2fs", Medium::kDrive},
    KnownType{0x794c7630, "overlay", Medium::kDrive},
    KnownType{0x6969, "nfs", Medium::kDrive},
    KnownType{0x65735546, "fuse", Medium::kDrive},
    KnownType{0x01021997, "9p", Medium::kDrive},
};

}  // namespace

std::string nearest_existing(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  return at.string();
}

Filesystem filesystem_of(const std::string& path) {
  const std::string at = nearest_existing(path);
  struct statfs space = {};
  struct stat entry = {};
  SLUICE_CHECK(::statfs(at.c_str(), &space) == 0 && ::stat(at.c_str(), &entry) == 0, kIo,
               fmt::format("{}: cannot ask its filesystem: {}", path,
                           std::generic_category().message(errno)));
  Filesystem found;
  // The magic is 32 bits in a signed word on some machines: without the mask ramfs is not found.
  const auto magic = static_cast<std::uint64_t>(space.f_type) & 0xffffffffU;
  found.type = fmt::format("filesystem {:#x}", magic);
  for (const KnownType& known : kKnownTypes) {
    if (known.magic != magic) continue;
    found.type = known.name;
    found.medium = known.medium;
  }
  found.device = entry.st_dev;
  found.free = static_cast<Bytes>(space.f_bavail) * static_cast<Bytes>(space.f_bsize);
  return found;
}

std::vector<Filesystem> filesystems_of(const std::vector<std::string>& paths) {
  std::set<std::uint64_t> seen;
  std::vector<Filesystem> all;
  for (const std::string& path : paths) {
    const Filesystem found = filesystem_of(path);
    if (seen.insert(found.device).second) all.push_back(found);
  }
  return all;
}

Bytes free_bytes(const std::string& path) {
  return filesystem_of(path).free;
}

Bytes free_bytes(const std::vector<std::string>& paths) {
  Bytes total = 0;
  for (const Filesystem& found : filesystems_of(paths)) total += found.free;
  return total;
}

void check_file_size(const std::string& path, Bytes n) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  SLUICE_CHECK(n <= limit.rlim_cur, kBudget,
               fmt::format("{}: needs a file of {}, `ulimit -f` allows {}; raise it", path,
                           format_bytes(n), format_bytes(limit.rlim_cur)));
}

}  // namespace sluice::nvme
