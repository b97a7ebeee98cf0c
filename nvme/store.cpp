#include "nvme/store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "nvme/aligned.h"
#include "nvme/filesystem.h"

namespace sluice::nvme {
namespace {

namespace fs = std::filesystem;

/// A folder that was looked at, and its part of the store.
struct Site {
  std::string path;
  Filesystem on;
  Bytes bytes;
};

void check_writable(const std::string& path) {
  const std::string at = nearest_existing(path);
  std::error_code error;
  SLUICE_CHECK(fs::is_directory(at, error), kConfig,
               fmt::format("tiers.nvme.paths: {} is not a folder; name one on a drive", at));
  SLUICE_CHECK(::access(at.c_str(), W_OK | X_OK) == 0, kConfig,
               fmt::format("tiers.nvme.paths: {}: cannot write to {}: {}", path, at,
                           std::generic_category().message(errno)));
}

/// Looks only: a folder may not exist yet.
std::vector<Site> survey(const std::vector<std::string>& paths, Bytes capacity, AllowRam allow_ram,
                         const std::vector<double>& speeds) {
  SLUICE_CHECK(!paths.empty(), kConfig,
               "tiers.nvme.paths: no folder is named; name at least one on a drive");
  std::vector<Site> sites;
  std::vector<Place> places;
  for (const std::string& path : paths) {
    check_writable(path);
    const Filesystem on = filesystem_of(path);
    SLUICE_CHECK(on.medium != Medium::kRam || allow_ram == AllowRam::kYes, kConfig,
                 fmt::format("tiers.nvme.paths: {} is {}, which is memory and not a drive; name a "
                             "folder on a drive, or set tiers.nvme.allow_ram_path: true",
                             path, on.type));
    const double speed = speeds.empty() ? 1 : speeds.at(sites.size());
    sites.push_back({path, on, 0});
    places.push_back({path, on.device, on.free, speed});
  }
  const std::vector<Bytes> shares = share_capacity(places, capacity);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    check_file_size(sites[i].path, shares[i]);
    sites[i].bytes = shares[i];
  }
  return sites;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  SLUICE_CHECK(!error, kConfig,
               fmt::format("tiers.nvme.paths: cannot make {}: {}", path, error.message()));
}

/// A process that is killed between the two calls leaves the name: no later one may want it again,
/// and process numbers come again.
File make_file(const std::string& folder, Caching caching) {
  static std::atomic<unsigned> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string name = fmt::format("sluice-{}-{}-{}.swap", ::getpid(), now, count++);
  File file = File::open((fs::path(folder) / name).string(), Access::kCreateNew, caching);
  file.unlink();
  return file;
}

/// Empty when O_DIRECT really works here, else what went wrong. Opening with the flag proves
/// nothing: some filesystems take it and fail, or lie, at the first transfer. Throws kBudget when
/// there is no room to try.
std::string why_not_direct(const std::string& folder) {
  constexpr std::size_t kBytes = kAlignment;
  const AlignedBytes written = allocate_aligned(kBytes);
  const AlignedBytes read_back = allocate_aligned(kBytes);
  std::memset(written.get(), 0xa5, kBytes);
  std::optional<File> file;
  try {
    file.emplace(make_file(folder, Caching::kDirect));
  } catch (const Error& error) {
    return error.what();
  }
  if (::pwrite(file->fd(), written.get(), kBytes, 0) != static_cast<ssize_t>(kBytes) ||
      ::pread(file->fd(), read_back.get(), kBytes, 0) != static_cast<ssize_t>(kBytes)) {
    const int error = errno;
    std::string why = std::generic_category().message(error);
    SLUICE_CHECK(error != ENOSPC && error != EDQUOT, kBudget,
                 fmt::format("{}: not even {} can be written: {}; free some space there, or leave "
                             "this folder out",
                             folder, format_bytes(kBytes), why));
    return why;
  }
  const bool same = std::memcmp(written.get(), read_back.get(), kBytes) == 0;
  return same ? "" : "what was written did not come back";
}

Caching caching_of(const std::string& folder, Direct direct) {
  if (direct == Direct::kFalse) return Caching::kPageCache;
  const std::string why = why_not_direct(folder);
  if (why.empty()) return Caching::kDirect;
  SLUICE_CHECK(direct == Direct::kAuto, kEnv,
               fmt::format("aio.direct: true, but O_DIRECT does not work in {}: {}; set it to auto "
                           "or false, or name another folder",
                           folder, why));
  return Caching::kPageCache;
}

}  // namespace

std::vector<Bytes> check_folders(const std::vector<std::string>& paths, Bytes capacity,
                                 AllowRam allow_ram) {
  std::vector<Bytes> shares;
  for (const Site& site : survey(paths, capacity, allow_ram, {})) shares.push_back(site.bytes);
  return shares;
}

File open_unnamed(const std::string& folder, Direct direct) {
  return make_file(folder, caching_of(folder, direct));
}

Store::Store(const std::vector<std::string>& paths, Bytes capacity, const Options& options,
             AllowRam allow_ram, const std::vector<double>& speeds, const WrapQueue& wrap)
    : folders_(open_folders(paths, capacity, options.direct, allow_ram, speeds)),
      stripes_(stripes_of(folders_)) {
  if (options.verify == Verify::kTrue) sums_.emplace();
  make_queues(options, wrap);
}

std::vector<Store::Folder> Store::open_folders(const std::vector<std::string>& paths,
                                               Bytes capacity, Direct direct, AllowRam allow_ram,
                                               const std::vector<double>& speeds) {
  const std::vector<Site> sites = survey(paths, capacity, allow_ram, speeds);
  for (const Site& site : sites) make_folder(site.path);
  std::vector<Folder> folders;
  for (const Site& site : sites) {
    if (site.on.medium == Medium::kRam) {
      log::warning(fmt::format("{} is {}: what is written there stays in memory, as was allowed",
                               site.path, site.on.type));
    }
    File file = open_unnamed(site.path, direct);
    if (direct == Direct::kAuto && file.caching() == Caching::kPageCache) {
      log::warning(
          fmt::format("O_DIRECT does not work in {}. Going through the page cache, which takes "
                      "memory (aio.direct: false is silent)",
                      site.path));
    }
    file.preallocate(site.bytes);
    folders.push_back({site.path, site.on.type, site.on.device, site.bytes, std::move(file)});
  }
  return folders;
}

Stripes Store::stripes_of(const std::vector<Folder>& folders) {
  std::vector<Bytes> shares;
  for (const Folder& folder : folders) shares.push_back(folder.capacity);
  return Stripes(shares);
}

/// Folders of one filesystem are one drive.
void Store::make_queues(const Options& options, const WrapQueue& wrap) {
  std::vector<std::uint64_t> devices;
  std::vector<Caching> cachings;  // by device: direct where every file is
  for (Folder& folder : folders_) {
    const auto at = std::ranges::find(devices, folder.device);
    folder.drive = static_cast<std::size_t>(at - devices.begin());
    if (at == devices.end()) {
      devices.push_back(folder.device);
      cachings.push_back(folder.file.caching());
    } else if (folder.file.caching() == Caching::kPageCache) {
      cachings[folder.drive] = Caching::kPageCache;
    }
  }
  for (const Caching caching : cachings) {
    auto queue = make_queue(options, caching);
    queues_.push_back(wrap ? wrap(std::move(queue)) : std::move(queue));
  }
}

void Store::enrol(const std::vector<std::span<std::byte>>& memory) {
  for (std::size_t drive = 0; drive < queues_.size(); ++drive) {
    Enrolment most{{}, memory};
    for (const Folder& folder : folders_) {
      if (folder.drive == drive) most.files.push_back(&folder.file);
    }
    queues_[drive]->enrol(most);
  }
}

Extent Store::allocate(Bytes n) {
  SLUICE_CHECK(n <= free(), kBudget,
               fmt::format("nvme: asked {}, {} free of {}; raise the capacity of the store",
                           format_bytes(n), format_bytes(free()), format_bytes(stripes_.bytes())));
  const Extent extent{used_, round_up(n, kAlignment)};
  used_ += extent.bytes;
  return extent;
}

Ticket Store::read(const Extent& extent, Bytes offset, std::span<std::byte> dst,
                   const std::shared_ptr<void>& keep) {
  Ticket arrived = transfer(Op::kRead, extent, offset, dst, keep);
  if (!sums_) return arrived;
  return arrived.then([this, begin = extent.begin + offset, dst, keep] { check_sums(begin, dst); });
}

Ticket Store::write(const Extent& extent, Bytes offset, std::span<const std::byte> src,
                    const std::shared_ptr<void>& keep) {
  // A request has one pointer for both ways; a write does not touch the memory.
  const std::span memory(const_cast<std::byte*>(src.data()), src.size());
  return transfer(Op::kWrite, extent, offset, memory, keep);
}

void Store::check_sums(Bytes begin, std::span<const std::byte> read) const {
  const auto bad = sums_->differs(begin, read);
  SLUICE_CHECK(!bad, kIo,
               fmt::format("{}: what was read is not what was written there (XXH3); the drive, "
                           "its cable or the memory loses bits: see `dmesg`, and test them",
                           where(*bad)));
}

std::string Store::where(const Extent& range) const {
  std::vector<Part> files;  // what lies on one path lies there in a row
  for (const Part& part : stripes_.slice(range.begin, range.bytes)) {
    const auto known = std::ranges::find(files, part.path, &Part::path);
    if (known == files.end()) {
      files.push_back(part);
    } else {
      known->bytes += part.bytes;
    }
  }
  std::string text;
  for (const Part& part : files) {
    text += fmt::format("{}{}: {} bytes at offset {}", text.empty() ? "" : ", ",
                        folders_[part.path].file.path(), part.bytes, part.offset);
  }
  return text;
}

Ticket Store::transfer(Op op, const Extent& extent, Bytes offset, std::span<std::byte> memory,
                       const std::shared_ptr<void>& keep) {
  SLUICE_CHECK(offset <= extent.bytes && memory.size() <= extent.bytes - offset, kLogic,
               fmt::format("nvme: {} bytes at offset {} of an extent of {} bytes", memory.size(),
                           offset, extent.bytes));
  // Checked without O_DIRECT too, so that a caller's mistake shows on every filesystem.
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  SLUICE_CHECK(address % kAlignment == 0, kLogic,
               fmt::format("nvme: memory at {:#x} is not aligned to {}", address, kAlignment));
  SLUICE_CHECK(extent.begin <= used_ && extent.bytes <= used_ - extent.begin, kLogic,
               "nvme: an extent of another store");
  if (sums_ && op == Op::kWrite) sums_->note(extent.begin + offset, memory);
  std::vector<std::vector<Request>> requests(queues_.size());
  for (const Part& part : stripes_.slice(extent.begin + offset, memory.size())) {
    const Folder& folder = folders_[part.path];
    requests[folder.drive].push_back({op, &folder.file, part.offset, memory.data(), part.bytes});
    memory = memory.subspan(part.bytes);
  }
  std::vector<Ticket> tickets;
  try {
    for (std::size_t drive = 0; drive < queues_.size(); ++drive) {
      if (requests[drive].empty()) continue;
      tickets.push_back(queues_[drive]->submit(requests[drive], keep));
    }
  } catch (...) {
    for (const Ticket& ticket : tickets) ticket.wait_error();  // they are at the memory still
    throw;
  }
  return Ticket::all(std::move(tickets));
}

std::string Store::describe() const {
  std::string text;
  for (std::size_t drive = 0; drive < queues_.size(); ++drive) {
    const IoQueue& queue = *queues_[drive];
    text += fmt::format("{}{}", drive == 0 ? "" : "; ", queue.describe());
    if (!queue.why().empty()) text += fmt::format(" ({})", queue.why());
    for (const Folder& folder : folders_) {
      if (folder.drive != drive) continue;
      text += fmt::format("; {} {} {} {}", folder.path, folder.filesystem,
                          folder.file.caching() == Caching::kDirect ? "direct" : "page cache",
                          format_bytes(folder.capacity));
    }
  }
  return text;
}

}  // namespace sluice::nvme
