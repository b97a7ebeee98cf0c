/// The drive beside which the benches of files measure.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "engine/base/error.h"
#include "engine/bench/fio.h"

namespace sluice {

/// Of this folder's files, and of no others: reads of them come from the drive.
inline void leave_the_page_cache(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    SLUICE_CHECK(fd >= 0, kIo, entry.path().string());
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

/// What fio measures of such traffic there.
inline bench::Measured measured_by_fio(bench::FioJob job, bench::Traffic traffic,
                                       const std::string& folder) {
  static const std::atomic<int> stop{0};
  job.point.traffic = traffic;
  return bench::run_fio(job, folder, stop).value();
}

/// Bytes per second into a new file of so many bytes, at most.
inline double new_file_rate(bench::FioJob job, Bytes bytes, const std::string& folder) {
  job.into_new_files = true;
  job.size = round_down(bytes, job.point.block);
  return measured_by_fio(job, bench::Traffic::kWrite, folder).write_rate;
}

}  // namespace sluice
