#include "gpu/backend_stream.h"

#include <fmt/format.h>

#include <cstdint>

#include "engine/base/error.h"

namespace sluice::gpu::backend {
namespace {

bool overlap(const void* a, const void* b, Bytes n) {
  const auto x = reinterpret_cast<std::uintptr_t>(a);
  const auto y = reinterpret_cast<std::uintptr_t>(b);
  return (x < y ? y - x : x - y) < n;
}

}  // namespace

void check_copy(std::string_view lane, const void* dst, const void* src, Bytes n) {
  SLUICE_CHECK(!overlap(dst, src, n), kLogic,
               fmt::format("copy of {} bytes on {} from {} onto itself at {}", n, lane, src, dst));
}

void check_work(std::string_view lane, const std::function<void()>& work) {
  SLUICE_CHECK(work != nullptr, kLogic, fmt::format("{}: asked to run nothing", lane));
}

void check_reached(const Event& begin, const Event& end) {
  SLUICE_CHECK(begin.ticket().ended() != 0 && end.ticket().ended() != 0, kLogic,
               "asked for the time between events of which one was not reached, or is empty");
}

}  // namespace sluice::gpu::backend
