#include "engine/bench/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace sluice::bench {
namespace {

namespace fs = std::filesystem;

/// The first line, without spaces at its ends; empty where there is none.
std::string line_of(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  const auto begin = line.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(' ') - begin + 1);
}

struct Mount {
  std::string type, source;
};

/// A line of mountinfo: id parent major:minor root point options... - type source options.
std::optional<Mount> mount_of(std::uint64_t number) {
  const std::string wanted = fmt::format("{}:{}", major(number), minor(number));
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, device, word;
    words >> id >> parent >> device;
    if (device != wanted) continue;
    while (words >> word && word != "-") {
    }
    Mount mount;
    words >> mount.type >> mount.source;
    return mount;
  }
  return std::nullopt;
}

/// In sysfs, of a block device: a partition or a whole drive.
fs::path folder_of(std::uint64_t number) {
  std::error_code error;
  const fs::path folder =
      fs::canonical(fmt::format("/sys/dev/block/{}:{}", major(number), minor(number)), error);
  return error ? fs::path() : folder;
}

/// A volume of several drives is made of what is in its `slaves`.
void add_drives(const fs::path& folder, std::set<fs::path>& drives) {
  std::error_code error;
  if (fs::exists(folder / "partition", error)) return add_drives(folder.parent_path(), drives);
  bool whole = true;
  for (const auto& entry : fs::directory_iterator(folder / "slaves", error)) {
    whole = false;
    const fs::path below = fs::canonical(entry.path(), error);
    if (!error) add_drives(below, drives);
  }
  if (whole) drives.insert(folder);
}

std::string link_of(const fs::path& drive) {
  const fs::path link = drive / "device" / "device";  // of a controller on PCIe
  const std::string speed = line_of(link / "current_link_speed");
  if (speed.empty()) return "";
  return fmt::format(", {} x{} of {} x{}", speed, line_of(link / "current_link_width"),
                     line_of(link / "max_link_speed"), line_of(link / "max_link_width"));
}

std::string text_of(const fs::path& drive) {
  std::string model = line_of(drive / "device" / "model");
  std::error_code error;
  if (model.empty()) {
    model = fs::read_symlink(drive / "device" / "driver", error).filename().string();
  }
  return fmt::format("{}{}{}{}{}", drive.filename().string(), model.empty() ? "" : " (", model,
                     model.empty() ? "" : ")", link_of(drive));
}

/// Some filesystems give folders a number that is no block device's; their mount names it.
std::uint64_t block_number(std::uint64_t number, const std::optional<Mount>& mount) {
  struct stat source = {};
  if (!folder_of(number).empty() || !mount || !mount->source.starts_with("/dev/")) return number;
  if (::stat(mount->source.c_str(), &source) != 0 || !S_ISBLK(source.st_mode)) return number;
  return source.st_rdev;
}

}  // namespace

Device device_of(std::uint64_t number) {
  const std::optional<Mount> mount = mount_of(number);
  Device device;
  if (mount) device.type = mount->type;
  std::set<fs::path> drives;
  const fs::path folder = folder_of(block_number(number, mount));
  if (!folder.empty()) add_drives(folder, drives);
  std::vector<std::string> texts;
  for (const fs::path& drive : drives) {
    device.drives.push_back(drive.filename().string());
    texts.push_back(text_of(drive));
  }
  std::ranges::sort(device.drives);
  device.text = fmt::format("{}", fmt::join(texts, " and "));
  if (drives.empty()) device.text = mount ? mount->source : "not known";
  return device;
}

bool share_a_drive(const Device& a, const Device& b) {
  return std::ranges::any_of(a.drives, [&](const std::string& drive) {
    return std::ranges::find(b.drives, drive) != b.drives.end();
  });
}

bool is_remote(const std::string& type) {
  static const std::set<std::string_view> kinds = {"nfs",  "nfs4", "cifs",    "smb3",   "ceph",
                                                   "9p",   "afs",  "lustre",  "beegfs", "glusterfs",
                                                   "gpfs", "fuse", "virtiofs"};
  return kinds.contains(type) || type.starts_with("fuse.");
}

}  // namespace sluice::bench
