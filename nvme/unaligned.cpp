#include "nvme/unaligned.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "engine/base/error.h"
#include "nvme/aligned.h"

namespace sluice::nvme {
namespace {

/// All of the bytes, by this thread, through the page cache.
template <class Call>
void transfer(Op op, Call call, const File& file, Bytes offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = call(file.fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    SLUICE_CHECK(
        n > 0, kIo,
        fmt::format("{}: {} of {} bytes at {} failed: {}", file.path(), name_of(op), bytes.size(),
                    offset,
                    n == 0 ? "the file ends before" : std::generic_category().message(errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<Bytes>(n);
  }
}

/// Opening with the flag proves nothing: the first block has to come as it is.
bool reads_directly(const std::string& path, Access access) {
  std::optional<File> direct;
  try {
    direct.emplace(File::open(path, access, Caching::kDirect));
  } catch (const Error&) {
    return false;
  }
  const File cached = File::open(path, Access::kRead, Caching::kPageCache);
  const AlignedBytes a = allocate_aligned(kAlignment), b = allocate_aligned(kAlignment);
  const ssize_t n = ::pread(direct->fd(), a.get(), kAlignment, 0);
  return n >= 0 && n == ::pread(cached.fd(), b.get(), kAlignment, 0) &&
         std::memcmp(a.get(), b.get(), static_cast<std::size_t>(n)) == 0;
}

}  // namespace

UnalignedFiles::UnalignedFiles(const std::vector<std::string>& paths, Access access,
                               const Options& options) {
  const bool direct =
      options.direct != Direct::kFalse && std::ranges::all_of(paths, [&](const std::string& path) {
        return reads_directly(path, access);
      });
  const Caching caching = direct ? Caching::kDirect : Caching::kPageCache;
  for (const std::string& path : paths) {
    File queued = File::open(path, access, caching);
    const Bytes bytes = queued.size();
    files_.push_back({std::move(queued), File::open(path, access, Caching::kPageCache), bytes});
  }
  queue_ = make_queue(options, caching);
}

Ticket UnalignedFiles::read(std::span<const Range> ranges) const {
  std::vector<Request> requests;
  for (const Range& range : ranges) {
    const Paired& file = files_[range.file];
    const Bytes begin = round_down(range.offset, kAlignment);
    const Bytes end = range.offset + range.bytes;
    // No queue reads beyond the end: the file's last block is this thread's, unless it is whole.
    const Bytes whole = std::min(round_up(end, kAlignment), round_down(file.bytes, kAlignment));
    if (whole > begin) {
      requests.push_back({Op::kRead, &file.queued, begin, range.room, whole - begin});
    }
    const Bytes last = std::max(begin, whole);
    if (last < end) {
      transfer(Op::kRead, ::pread, file.cached, last, {range.room + (last - begin), end - last});
    }
  }
  return requests.empty() ? Ticket() : queue_->submit(requests, nullptr);
}

Ticket UnalignedFiles::write(const Range& range) const {
  const Paired& file = files_[range.file];
  const Bytes end = range.offset + range.bytes;
  const Bytes first = std::min(round_up(range.offset, kAlignment), end);
  const Bytes last = std::max(round_down(end, kAlignment), first);
  const auto at = [&](Bytes offset) { return range.data().data() + (offset - range.offset); };
  const auto by_this_thread = [&](Bytes from, Bytes to) {
    transfer(Op::kWrite, ::pwrite, file.cached, from, {at(from), to - from});
  };
  by_this_thread(range.offset, first);
  by_this_thread(last, end);
  if (first == last) return {};
  return queue_->submit({Op::kWrite, &file.queued, first, at(first), last - first});
}

}  // namespace sluice::nvme
