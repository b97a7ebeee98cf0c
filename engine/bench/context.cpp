#include "engine/bench/context.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>

#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/file_kind.h"
#include "engine/base/machine.h"
#include "engine/bench/wear.h"
#include "nvme/aligned.h"
#include "nvme/io_queue.h"

namespace sluice::bench {
namespace {

namespace fs = std::filesystem;

/// Of what a point has in flight; pinning less would tell nothing of the limit.
constexpr Bytes kPinned = 64_MiB;

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "not known";
}

/// What the filesystem itself says, where the kernel can be asked (6.1).
std::string asked_alignment(const nvme::File& file) {
#ifdef STATX_DIOALIGN
  struct statx got = {};
  if (::statx(file.fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &got) == 0 &&
      (got.stx_mask & STATX_DIOALIGN) != 0 && got.stx_dio_offset_align != 0) {
    return fmt::format(" (the drive asks for offsets in multiples of {}, memory of {})",
                       got.stx_dio_offset_align, got.stx_dio_mem_align);
  }
#endif
  return "";
}

std::string direct_text(const nvme::File& file, nvme::Direct direct) {
  if (file.caching() == nvme::Caching::kDirect) {
    return fmt::format("O_DIRECT works, aligned to {}{}", kAlignment, asked_alignment(file));
  }
  return direct == nvme::Direct::kFalse ? "through the page cache, as asked"
                                        : "O_DIRECT does not work: through the page cache";
}

/// Empty when it is usable.
std::string why_not(nvme::Engine engine, nvme::Caching caching) {
  if (engine == nvme::Engine::kLibaio && caching == nvme::Caching::kPageCache) {
    return "it waits for each transfer that goes through the page cache";
  }
  return nvme::why_unusable(engine, caching);
}

void add_engines(Means& means) {
  std::vector<std::string> usable, others;
  for (const nvme::Engine engine :
       {nvme::Engine::kIoUring, nvme::Engine::kLibaio, nvme::Engine::kThreads}) {
    const std::string why = why_not(engine, means.caching);
    if (why.empty()) {
      means.engines.push_back(engine);
      usable.emplace_back(name_of(engine));
    } else {
      others.push_back(fmt::format("not {}: {}", name_of(engine), why));
    }
  }
  means.context.engines = fmt::format("{}", fmt::join(usable, ", "));
  if (!others.empty()) means.context.engines += fmt::format("; {}", fmt::join(others, "; "));
}

std::string memlock_text(const Means& means, const nvme::File& file) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  std::string allowed =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_bytes(limit.rlim_cur);
  if (means.engines.front() != nvme::Engine::kIoUring) return allowed;
  nvme::Options options;
  options.engine = nvme::Engine::kIoUring;
  const nvme::AlignedBytes memory = nvme::allocate_aligned(kPinned);
  const auto queue = nvme::make_queue(options, means.caching);
  queue->enrol({{&file}, {{memory.get(), kPinned}}});
  return fmt::format("{} ({} tried: {})", allowed, format_bytes(kPinned), queue->describe());
}

/// Of a folder that lies on one drive.
void add_wear(const Place& place, Context& context) {
  if (place.device.drives.size() != 1) return;
  const auto wear = wear_of(place.device.drives.front());
  if (!wear) return;
  context.wear = text_of(*wear);
  context.endurance_left = endurance_left(*wear);
}

void require_folder(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  SLUICE_CHECK(
      fs::is_directory(status), kConfig,
      fmt::format("'{}' is {}, not a folder; name a folder on the drive", path, kind_of(status)));
  SLUICE_CHECK(::access(path.c_str(), W_OK | X_OK) == 0, kConfig,
               fmt::format("{} cannot be written: {}; name a folder that you may write to", path,
                           std::generic_category().message(errno)));
}

void add_notes(Place& place) {
  const std::string& type = place.device.type;
  if (place.on.medium == nvme::Medium::kRam) {
    place.notes.push_back(
        fmt::format("{} is memory: this is not the speed of a drive", place.on.type));
  }
  if (is_remote(type)) {
    place.notes.push_back(fmt::format(
        "{} is served by another machine or a program: what is measured is that too", type));
  }
  if (type == "overlay") {
    place.notes.emplace_back(
        "overlay is the inside of a container: a folder mounted into it from the drive is faster");
  }
}

}  // namespace

MachineContext machine_context() {
  return {.date = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr))),
          .cpu = cpu_model().value_or("not known"),
          .cores = cores().usable,
          .kernel = kernel_release()};
}

Place place_of(const std::string& path, nvme::AllowRam allow_ram) {
  Place place;
  std::error_code error;
  require_folder(nvme::nearest_existing(path));
  // Its parent may be on another drive, which much would be written to.
  SLUICE_CHECK(fs::exists(path, error), kConfig,
               fmt::format("{} does not exist; make it, or name a folder that is there", path));
  place.folder = fs::weakly_canonical(path, error).string();
  place.on = nvme::filesystem_of(place.folder);
  SLUICE_CHECK(
      place.on.medium != nvme::Medium::kRam || allow_ram == nvme::AllowRam::kYes, kConfig,
      fmt::format("{} is {}, which is memory and not a drive; name a folder on a drive, or "
                  "add --allow-ram",
                  path, place.on.type));
  place.device = device_of(place.on.device);
  add_notes(place);
  return place;
}

void require_room(const Place& place, Bytes n) {
  nvme::check_file_size(place.folder, n);
  SLUICE_CHECK(n <= place.on.free, kBudget,
               fmt::format("{}: needs {}, {} free; free some space, or lower --file-size",
                           place.folder, format_bytes(n), format_bytes(place.on.free)));
}

bool one_drive(const Place& a, const Place& b) {
  return a.on.device == b.on.device || share_a_drive(a.device, b.device);
}

Means means_of(Place& place, nvme::Direct direct) {
  const nvme::File file = nvme::open_unnamed(place.folder, direct);
  Means means;
  means.caching = file.caching();
  Context& context = means.context;
  static_cast<MachineContext&>(context) = machine_context();
  context.path = place.folder;
  context.filesystem = place.on.type;
  context.device = place.device.text;
  context.free = place.on.free;
  add_wear(place, context);
  add_engines(means);
  context.direct = direct_text(file, direct);
  context.memlock = memlock_text(means, file);
  if (direct == nvme::Direct::kAuto && means.caching == nvme::Caching::kPageCache) {
    place.notes.emplace_back(
        "without O_DIRECT what is measured is memory and drive together; name a folder where it "
        "works");
  }
  return means;
}

}  // namespace sluice::bench
