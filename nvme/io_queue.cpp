#include "nvme/io_queue.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "nvme/libaio_queue.h"
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

const char* name_of(Op op) {
  switch (op) {
    case Op::kRead:
      return "read";
    case Op::kWrite:
      return "write";
  }
  return "";
}

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

std::unique_ptr<IoQueue> make_queue(const Options& options, Caching caching,
                                    std::shared_ptr<KernelSeam> seam) {
  check_options(options);
  switch (options.engine) {
    case Engine::kIoUring:
      return make_uring_queue(options, std::move(seam));
    case Engine::kLibaio:
      return make_libaio_queue(options, std::move(seam));
    case Engine::kThreads:
      return make_thread_queue(options, std::move(seam));
    case Engine::kAuto:
      break;
  }
  if (caching == Caching::kPageCache) {
    auto queue = make_thread_queue(options, std::move(seam));
    queue->chosen_because("requests go through the page cache");
    return queue;
  }
  std::string why;
  const auto said = [&](std::unique_ptr<IoQueue> queue) {
    if (!why.empty()) {
      log::warning(fmt::format("{}. Using {} instead (an aio.engine that is named is silent)", why,
                               queue->describe()));
      queue->chosen_because(why);
    }
    return queue;
  };
  for (const auto make : {make_uring_queue, make_libaio_queue}) {
    try {
      return said(make(options, seam));
    } catch (const Error& error) {
      if (error.code != Errc::kEnv) throw;
      why += fmt::format("{}{}", why.empty() ? "" : ". ", error.what());
    }
  }
  return said(make_thread_queue(options, std::move(seam)));
}

std::string why_unusable(Engine engine, Caching caching) {
  Options options;
  options.engine = engine;
  try {
    make_queue(options, caching);
  } catch (const Error& error) {
    if (error.code != Errc::kEnv) throw;
    return error.what();
  }
  return "";
}

}  // namespace sluice::nvme
