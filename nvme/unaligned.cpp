#include "nvme/unaligned.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "nvme/aligned.h"
#include "nvme/transfer.h"

namespace sluice::nvme {
namespace {

/// All of the bytes, by this thread, through the page cache.
void transfer(const Request& request) {
  if (request.bytes == 0) return;
  Piece piece;
  piece.rest = request;
  Step step = Step::kAgain;
  while (step == Step::kAgain || step == Step::kAgainLater) {
    const Request& left = piece.rest;
    const auto offset = static_cast<off_t>(left.offset);
    const ssize_t moved = left.op == Op::kRead
                              ? ::pread(left.file->fd(), left.data, left.bytes, offset)
                              : ::pwrite(left.file->fd(), left.data, left.bytes, offset);
    step = advance(piece, moved >= 0 ? moved : -errno);
    if (step == Step::kAgainLater) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (step == Step::kFailed) std::rethrow_exception(piece.error);
}

// A larger page would hold blocks of the queue beside the end of a range, dirty in the page cache,
// which a write around it may not drop.
bool a_page_is_a_block() {
  return static_cast<Bytes>(::sysconf(_SC_PAGESIZE)) <= kAlignment;
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

/// The engine that kAuto comes to, by name: that is silent. It is the tier's business to say why.
Options without_a_word(Options options, Caching caching) {
  if (options.engine != Engine::kAuto || caching == Caching::kPageCache) return options;
  for (const Engine engine : {Engine::kIoUring, Engine::kLibaio, Engine::kThreads}) {
    options.engine = engine;
    if (why_unusable(engine, caching).empty()) break;
  }
  return options;
}

}  // namespace

UnalignedFiles::UnalignedFiles(const std::vector<std::string>& paths, Access access,
                               const Options& options)
    : options_(options) {
  const bool direct =
      options.direct != Direct::kFalse && (access == Access::kRead || a_page_is_a_block()) &&
      std::ranges::all_of(paths,
                          [&](const std::string& path) { return reads_directly(path, access); });
  for (const std::string& path : paths) {
    const auto open = [&](Caching caching) { return File::open(path, access, caching); };
    Paired& file = files_.emplace_back(
        Paired{open(direct ? Caching::kDirect : Caching::kPageCache), std::nullopt});
    if (direct) file.beside.emplace(open(Caching::kPageCache));
  }
}

IoQueue& UnalignedFiles::queue() const {
  std::call_once(made_, [&] {
    const Caching caching = files_.front().queued.caching();
    queue_ = make_queue(without_a_word(options_, caching), caching);
  });
  return *queue_;
}

Ticket UnalignedFiles::read(std::span<const Range> ranges) const {
  std::vector<Request> requests;
  for (const Range& range : ranges) {
    if (range.bytes == 0) continue;
    const Paired& file = files_[range.file];
    const Bytes bytes = file.queued.size();
    const Bytes begin = round_down(range.offset, kAlignment);
    const Bytes end = range.offset + range.bytes;
    SLUICE_CHECK(
        end <= bytes, kFormat,
        fmt::format("{}: ends at byte {}, {} bytes early; it was cut short: copy it again, "
                    "and leave it alone while it is read",
                    file.queued.path(), bytes, end - bytes));
    // No queue reads beyond the end: the file's last block is this thread's, unless it is whole.
    const Bytes whole = std::min(round_up(end, kAlignment), round_down(bytes, kAlignment));
    if (whole > begin) {
      requests.push_back({Op::kRead, &file.queued, begin, range.room, whole - begin});
    }
    const Bytes last = std::max(begin, whole);
    if (last < end) {
      transfer({Op::kRead, &file.cached(), last, range.room + (last - begin), end - last});
    }
  }
  return requests.empty() ? Ticket() : queue().submit(requests, nullptr);
}

Ticket UnalignedFiles::write(const Range& range) const {
  const Paired& file = files_[range.file];
  const Bytes end = range.offset + range.bytes;
  const Bytes first = std::min(round_up(range.offset, kAlignment), end);
  const Bytes last = std::max(round_down(end, kAlignment), first);
  const auto at = [&](Bytes offset) { return range.data().data() + (offset - range.offset); };
  const auto by_this_thread = [&](Bytes from, Bytes to) {
    transfer({Op::kWrite, &file.cached(), from, at(from), to - from});
  };
  by_this_thread(range.offset, first);
  by_this_thread(last, end);
  if (first == last) return {};
  return queue().submit({Op::kWrite, &file.queued, first, at(first), last - first});
}

}  // namespace sluice::nvme
