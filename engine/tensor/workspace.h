/// The memory that the ops of a compute lane need beyond their buffers, and who may use it when.
#pragma once

#include <c10/core/StreamGuard.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/units.h"
#include "engine/tensor/arena.h"

namespace sluice::tensor {

namespace backend {
class Reservation;
}

/// What ops took at most.
struct Usage {
  Bytes main = 0;  ///< by the thread of the op: the same in every repeat
  Bytes side = 0;  ///< by OpenMP workers, which come in no fixed order: leave twice this
  /// What did not fit the side arena, or a Stack, and came from elsewhere: counted in no tier.
  Bytes spilled = 0;
};

/// One range of memory for everything that LibTorch allocates inside an op. The thread of the op
/// has the main arena to itself; OpenMP workers share a small side arena behind a lock.
///
/// Owns    not the memory (`measuring()` owns what it measures in); it must outlive every tensor in
/// it Thread  one op at a time in the whole process (see OpScope); memory may be freed on any
/// thread
class Workspace {
 public:
  /// The last `side` bytes of `memory` are the side arena. Throws kLogic when `memory` is not
  /// aligned to Arena::kStep or smaller than `side`.
  Workspace(std::span<std::byte> memory, Bytes side);
  /// A workspace to measure what an op needs, up to `most`: a range of addresses whose pages are
  /// only made when they are used, or memory of a CUDA device, whose last 1 GiB stays free, until
  /// it is destroyed. Run the op in it, then read peak(); the same op fits a workspace of
  /// `peak().main` bytes exactly, at the same offsets. Throws kEnv, kBudget when the system
  /// refuses.
  static Workspace measuring(Bytes most);

  ~Workspace();
  Workspace(Workspace&&) = delete;

  Usage peak() const;

 private:
  friend class OpScope;
  friend class Routes;
  friend class Stack;
  Workspace(std::unique_ptr<backend::Reservation> reservation, Bytes most);

  bool contains(const void* p) const;
  void* take_main(Bytes n, std::string_view op);
  void* take_side(Bytes n);
  void give_back_main(void* p);
  void give_back_from_elsewhere(void* p);
  void collect_returned();

  std::unique_ptr<backend::Reservation> reservation_;  // null over memory of somebody else's
  std::byte* base_;
  Arena main_;
  Arena::Fit fit_ = Arena::Fit::kBest;
  std::byte* side_base_;
  mutable std::mutex mutex_;  // guards what follows
  Arena side_;
  Bytes spilled_ = 0;
  std::vector<void*> returned_;  // pieces of main_ freed by other threads
};

/// While it lives, every LibTorch allocation on device() of this thread, and of the OpenMP workers
/// of the process, comes from the workspace, and what LibTorch launches goes to the stream whose
/// work the thread is in. Asking for more than it has throws kBudget, naming the op,
/// what it asked and what is free; the error unwinds through LibTorch, the scope stays usable.
///
/// Thread  made and closed on one thread, which may have no other scope; one scope in the process
class OpScope {
 public:
  /// Throws kLogic when another scope is open, an earlier op left tensors in the workspace, or, on
  /// CUDA, outside of a stream's work.
  OpScope(Workspace& workspace, std::string_view op_name);
  /// Ends the scope. Throws kLogic, naming the op, when tensors of it are still alive.
  void close();
  /// As close(), but what close() would throw is logged.
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  friend class Routes;
  friend class Stack;
  void leave() noexcept;

  Workspace& workspace_;
  const std::string name_;
  c10::OptionalStreamGuard stream_;
  bool open_ = true;
};

/// While it lives, what the thread of the op takes is put behind all that it holds, in the order in
/// which it is taken. What that needs at most grows with the sizes asked and with nothing else; so
/// of the same work on pieces of different sizes, having measured the largest is enough. Everything
/// that was made in it must be gone at its end. Should a smaller piece need more after all, that
/// comes from elsewhere and is reported. Outside an op it does nothing.
///
/// Thread  of the op; one at a time
class Stack {
 public:
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

 private:
  Workspace* workspace_;
};

/// Where LibTorch's allocator sends a request, and where a pointer goes home to. Outside an op this
/// is backend::take_outside(). For the allocators of host/ and cuda/.
class Routes {
 public:
  /// n > 0; aligned to Arena::kStep. Throws kBudget.
  static void* take(Bytes n);
  static void give_back(void* p) noexcept;
};

}  // namespace sluice::tensor
