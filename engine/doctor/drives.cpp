#include "engine/doctor/drives.h"

#include <fmt/format.h>
#include <unistd.h>

#include "engine/base/error.h"
#include "nvme/filesystem.h"
#include "nvme/io_queue.h"
#include "nvme/store.h"

namespace sluice::doctor {

std::vector<Finding> engines() {
  std::vector<Finding> all;
  for (const nvme::Engine engine :
       {nvme::Engine::kIoUring, nvme::Engine::kLibaio, nvme::Engine::kThreads}) {
    const std::string why = nvme::why_unusable(engine, nvme::Caching::kDirect);
    Finding f{Verdict::kOk, nvme::name_of(engine), "works", ""};
    if (!why.empty()) f = {Verdict::kLess, f.subject, "cannot be used", why};
    all.push_back(std::move(f));
  }
  return all;
}

Finding folder(const std::string& key, const std::string& path, Holds holds) {
  Finding f{Verdict::kOk, key, path, ""};
  const auto worse = [&](Verdict verdict, const std::string& found, const std::string& fix) {
    f.verdict = verdict;
    f.found += found;
    f.fix = fix;
    return f;
  };
  try {
    const std::string there = nvme::nearest_existing(path);
    const nvme::Filesystem on = nvme::filesystem_of(there);
    f.found += fmt::format(": {}, {} free", on.type, format_bytes(on.free));
    if (::access(there.c_str(), W_OK | X_OK) != 0) {
      return worse(Verdict::kMissing, fmt::format(", {} cannot be written to", there),
                   "give this user the right to write there, or name another folder");
    }
    if (holds == Holds::kTier && on.medium == nvme::Medium::kRam) {
      return worse(Verdict::kMissing, ", which is memory and no drive",
                   "name a folder on a drive, or set tiers.nvme.allow_ram_path to true");
    }
    const nvme::File tried = nvme::open_unnamed(there, nvme::Direct::kAuto);
    const bool direct = tried.caching() == nvme::Caching::kDirect;
    f.found += direct ? ", O_DIRECT works" : ", O_DIRECT does not work";
    if (direct || holds == Holds::kFiles) return f;
    return worse(Verdict::kLess, "",
                 "name a folder on ext4 or xfs (in a container: one that is mounted into it); "
                 "through the page cache transfers take memory and time");
  } catch (const Error& error) {
    return worse(Verdict::kMissing, "", error.what());
  }
}

}  // namespace sluice::doctor
