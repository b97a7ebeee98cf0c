#include "engine/tensor/backend.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/pages.h"
#include "engine/tensor/arena.h"

namespace sluice::tensor::backend {

void* take_outside(Bytes n) {
  void* p = std::aligned_alloc(Arena::kStep, round_up(n, Arena::kStep));
  SLUICE_CHECK(p != nullptr, kBudget,
               fmt::format("LibTorch asked for {} outside an op and the machine has no more memory",
                           format_bytes(n)));
  return p;
}

void give_back_outside(void* p) noexcept {
  std::free(p);
}

// Addresses without memory. Pages are made accessible as the arenas grow into them, so this works
// where the kernel does not overcommit.
struct Reservation::Range {
  static constexpr Bytes kCommit = 64_MiB;

  // Makes [begin, begin + used) readable and writable, given that [begin, begin + committed) is.
  static void commit(std::byte* begin, Bytes& committed, Bytes used) {
    if (used <= committed) return;
    const Bytes wanted = round_up(used, kCommit);
    SLUICE_CHECK(mprotect(begin + committed, wanted - committed, PROT_READ | PROT_WRITE) == 0,
                 kBudget,
                 fmt::format("workspace: an op needs {} and the machine has no more memory ({})",
                             format_bytes(used), std::strerror(errno)));
    committed = wanted;
  }

  std::byte* base;
  Bytes size;
  Bytes main_committed = 0;
  Bytes side_committed = 0;
};

// Half for each arena; less where `ulimit -v` leaves less.
Reservation::Reservation(Bytes most) {
  constexpr Bytes kCommit = Range::kCommit;
  Bytes size = 2 * round_up(std::max<Bytes>(most, 1), kCommit);
  void* p = MAP_FAILED;
  while (true) {
    p = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED || size <= 2 * kCommit) break;
    size = 2 * round_up(size / 4, kCommit);
  }
  SLUICE_CHECK(p != MAP_FAILED, kEnv,
               fmt::format("workspace: the system refused {} of addresses to measure ops in "
                           "({}); raise `ulimit -v`",
                           format_bytes(size), std::strerror(errno)));
  advise_pages(static_cast<std::byte*>(p), size);  // as the workspace of a run has them
  range_ = std::make_unique<Range>(Range{static_cast<std::byte*>(p), size});
}

Reservation::~Reservation() {
  munmap(range_->base, range_->size);
}

std::byte* Reservation::main() const {
  return range_->base;
}
Bytes Reservation::main_size() const {
  return range_->size / 2;
}
Bytes Reservation::side_size() const {
  return range_->size / 2;
}

void Reservation::commit_main(Bytes used) {
  Range::commit(main(), range_->main_committed, used);
}
void Reservation::commit_side(Bytes used) {
  Range::commit(main() + main_size(), range_->side_committed, used);
}

std::optional<c10::Stream> stream_of_ops() {
  return std::nullopt;
}

std::span<const Variable> variables() {
  return {};
}

void set_deterministic() {}

void allow_tf32() {
  throw Error(Errc::kLogic, "this build has no TF32");
}

}  // namespace sluice::tensor::backend
