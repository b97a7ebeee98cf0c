/// What differs by the device that LibTorch computes on. Folders host/ and cuda/ define the same
/// symbols, as in gpu; CMake picks one. For this room only, as `device()` and `clear()` of view.h
/// and `install_allocator()` are for others.
#pragma once

#include <c10/core/Stream.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "engine/base/units.h"

namespace sluice::tensor::backend {

/// Memory that lies in no workspace: of requests outside ops, and of what finds no room in one.
/// Aligned to Arena::kStep.
///
/// Thread  any
/// Throws  kBudget
void* take_outside(Bytes n);
void give_back_outside(void* p) noexcept;

/// What ops are measured in: a main range, and one for OpenMP workers where they take memory.
///
/// Owns    what it reserved
/// Throws  kEnv, kBudget when there is nothing to be had
class Reservation {
 public:
  explicit Reservation(Bytes most);
  Reservation(Reservation&&) = delete;
  ~Reservation();

  std::byte* main() const;
  Bytes main_size() const;
  /// Begins where main ends.
  Bytes side_size() const;

  /// The first `used` bytes of a range are about to be used. Throws kBudget.
  void commit_main(Bytes used);
  void commit_side(Bytes used);

 private:
  struct Range;
  std::unique_ptr<Range> range_;
};

/// The stream that ops of this thread launch on, ready for them: what LibTorch keeps per stream for
/// good lies outside of workspaces. Nothing where work is done by who calls.
///
/// Throws  kLogic outside of a stream's work
std::optional<c10::Stream> stream_of_ops();

struct Variable {
  const char* name;
  const char* value;
};
/// Of the process, beyond those that every build sets.
std::span<const Variable> variables();

/// Beyond what set_deterministic() asks of every build.
void set_deterministic();
void allow_tf32();

}  // namespace sluice::tensor::backend
