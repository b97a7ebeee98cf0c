#include "nvme/io_queue.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "nvme/thread_queue.h"
#include "nvme/uring_queue.h"

namespace sluice::nvme {
namespace {

void check_options(const Options& options) {
  SLUICE_CHECK(
      options.block_size >= kAlignment && options.block_size <= kMaxBlockSize &&
          options.block_size % kAlignment == 0,
      kConfig,
      fmt::format("aio.block_size: {} is not possible; use a multiple of {} up to {}",
                  options.block_size, format_bytes(kAlignment), format_bytes(kMaxBlockSize)));
  SLUICE_CHECK(options.queue_depth >= 1 && options.queue_depth <= kMaxQueueDepth, kConfig,
               fmt::format("aio.queue_depth: {} is not possible; use 1 to {}", options.queue_depth,
                           kMaxQueueDepth));
  SLUICE_CHECK(!options.threads || (*options.threads >= 1 && *options.threads <= kMaxThreads),
               kConfig,
               fmt::format("aio.threads: {} is not possible; use 1 to {}",
                           options.threads.value_or(0), kMaxThreads));
}

}  // namespace

void check(const Request& request) {
  SLUICE_CHECK(request.file != nullptr, kLogic, "an I/O request names no file");
  if (request.bytes == 0) return;
  const std::string& path = request.file->path();
  SLUICE_CHECK(request.data != nullptr, kLogic,
               fmt::format("{}: a request of {} bytes has no memory", path, request.bytes));
  constexpr auto kEnd = static_cast<Bytes>(std::numeric_limits<std::int64_t>::max());
  SLUICE_CHECK(request.bytes <= kEnd && request.offset <= kEnd - request.bytes, kLogic,
               fmt::format("{}: {} bytes at offset {} end past what a file can hold", path,
                           request.bytes, request.offset));
  if (request.file->caching() != Caching::kDirect) return;
  const auto address = reinterpret_cast<std::uintptr_t>(request.data);
  SLUICE_CHECK(
      (request.offset | request.bytes | address) % kAlignment == 0, kLogic,
      fmt::format("{}: O_DIRECT wants multiples of {}: offset {}, length {}, address {:#x}", path,
                  kAlignment, request.offset, request.bytes, address));
}

std::unique_ptr<IoQueue> make_queue(const Options& options, std::shared_ptr<KernelSeam> seam) {
  check_options(options);
  if (options.engine == Engine::kThreads) return make_thread_queue(options, std::move(seam));
  if (options.engine == Engine::kIoUring) return make_uring_queue(options, std::move(seam));
  try {
    return make_uring_queue(options, seam);
  } catch (const Error& error) {
    if (error.code != Errc::kEnv) throw;
    log::warning(
        fmt::format("{}. Using threads instead (aio.engine: threads is silent)", error.what()));
    return make_thread_queue(options, std::move(seam));
  }
}

}  // namespace sluice::nvme
