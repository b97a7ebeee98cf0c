#include "engine/tensor/workspace.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/tensor/backend.h"

namespace sluice::tensor {
namespace {

thread_local OpScope* this_threads_scope = nullptr;
std::atomic<Workspace*> active{nullptr};  // of the one open scope, for OpenMP workers

// Every workspace that exists, so that a tensor that outlives its op still finds its way home.
std::mutex all_mutex;
std::vector<Workspace*> all;
std::atomic<std::size_t> all_count{0};

void enlist(Workspace* workspace) {
  const std::scoped_lock lock(all_mutex);
  all.push_back(workspace);
  all_count = all.size();
}

void delist(Workspace* workspace) {
  const std::scoped_lock lock(all_mutex);
  std::erase(all, workspace);
  all_count = all.size();
}

bool is_openmp_worker() {
  return omp_get_level() > 0 && omp_get_thread_num() > 0;
}

}  // namespace

Workspace::Workspace(std::span<std::byte> memory, Bytes side)
    : base_(memory.data()),
      main_(memory.size() - std::min<Bytes>(memory.size(), round_up(side, Arena::kStep))),
      side_base_(base_ + main_.capacity()),
      side_(side) {
  SLUICE_CHECK(reinterpret_cast<std::uintptr_t>(base_) % Arena::kStep == 0, kLogic,
               fmt::format("workspace: its memory must be aligned to {} bytes", Arena::kStep));
  SLUICE_CHECK(round_up(side, Arena::kStep) <= memory.size(), kLogic,
               fmt::format("workspace: {} cannot hold a side arena of {}",
                           format_bytes(memory.size()), format_bytes(side)));
  enlist(this);
}

Workspace::Workspace(std::unique_ptr<backend::Reservation> reservation, Bytes most)
    : reservation_(std::move(reservation)),
      base_(reservation_->main()),
      main_(std::min(most, reservation_->main_size())),
      side_base_(base_ + reservation_->main_size()),
      side_(std::min(most, reservation_->side_size())) {
  enlist(this);
}

Workspace Workspace::measuring(Bytes most) {
  return {std::make_unique<backend::Reservation>(most), most};
}

Workspace::~Workspace() {
  delist(this);
  collect_returned();
  if (main_.pieces() + side_.pieces() > 0) {
    log::error(fmt::format("workspace: destroyed while {} tensors lie in it",
                           main_.pieces() + side_.pieces()));
  }
}

Usage Workspace::peak() const {
  const std::scoped_lock lock(mutex_);
  return {.main = main_.peak(), .side = side_.peak(), .spilled = spilled_};
}

bool Workspace::contains(const void* p) const {
  const auto* at = static_cast<const std::byte*>(p);
  return at >= base_ && at < side_base_ + side_.capacity();
}

void* Workspace::take_main(Bytes n, std::string_view op) {
  collect_returned();
  const auto offset = main_.take(n, fit_);
  if (!offset && fit_ == Arena::Fit::kEnd) {
    const std::scoped_lock lock(mutex_);
    spilled_ += n;
    return backend::take_outside(n);
  }
  SLUICE_CHECK(
      offset, kBudget,
      fmt::format("op {}: asked {} of its workspace, {} free of {} (in pieces){}; lower "
                  "train.train_micro_batch_size_per_gpu or data.seq_len",
                  op, format_bytes(n), format_bytes(main_.free()), format_bytes(main_.capacity()),
                  reservation_ ? ", all that tiers.gpu.limit or this machine has for it"
                               : ", more than was measured"));
  if (reservation_) {
    try {
      reservation_->commit_main(main_.peak());
    } catch (...) {
      main_.give_back(*offset);
      throw;
    }
  }
  return base_ + *offset;
}

void* Workspace::take_side(Bytes n) {
  const std::scoped_lock lock(mutex_);
  const auto offset = side_.take(n);
  // The order of workers decides how the side arena breaks into pieces. A run must not fail by
  // that, so what does not fit comes from outside and is reported.
  if (!offset) {
    spilled_ += n;
    return backend::take_outside(n);
  }
  if (reservation_) {
    try {
      reservation_->commit_side(side_.peak());
    } catch (...) {
      side_.give_back(*offset);
      throw;
    }
  }
  return side_base_ + *offset;
}

void Workspace::give_back_main(void* p) {
  main_.give_back(static_cast<Bytes>(static_cast<std::byte*>(p) - base_));
}

void Workspace::give_back_from_elsewhere(void* p) {
  const std::scoped_lock lock(mutex_);
  if (p < side_base_) {
    returned_.push_back(p);
  } else {
    side_.give_back(static_cast<Bytes>(static_cast<std::byte*>(p) - side_base_));
  }
}

void Workspace::collect_returned() {
  // Inside a parallel region other threads are still at it: what they have returned by now is a
  // matter of timing, and must not decide where the next piece goes.
  if (omp_in_parallel() != 0) return;
  const std::scoped_lock lock(mutex_);
  for (void* p : returned_) give_back_main(p);
  returned_.clear();
}

OpScope::OpScope(Workspace& workspace, std::string_view op_name)
    : workspace_(workspace), name_(op_name), stream_(backend::stream_of_ops()) {
  workspace_.collect_returned();
  SLUICE_CHECK(workspace_.main_.pieces() == 0, kLogic,
               fmt::format("op {}: its workspace still holds {} tensors of an earlier op", name_,
                           workspace_.main_.pieces()));
  Workspace* none = nullptr;
  SLUICE_CHECK(active.compare_exchange_strong(none, &workspace_), kLogic,
               fmt::format("op {}: another op is running; one compute lane may use LibTorch at a "
                           "time",
                           name_));
  this_threads_scope = this;
}

void OpScope::leave() noexcept {
  open_ = false;
  stream_.reset();
  this_threads_scope = nullptr;
  active = nullptr;
}

void OpScope::close() {
  SLUICE_CHECK(this_threads_scope == this, kLogic,
               fmt::format("op {}: its scope is closed twice, or on another thread", name_));
  leave();
  workspace_.collect_returned();
  const std::size_t left = workspace_.main_.pieces();
  SLUICE_CHECK(left == 0, kLogic,
               fmt::format("op {}: {} tensors of it outlive it; they must be copied out or dropped",
                           name_, left));
}

OpScope::~OpScope() {
  if (!open_) return;
  try {
    close();
  } catch (const std::exception& e) {
    log::error(e.what());
  }
}

Stack::Stack() : workspace_(this_threads_scope ? &this_threads_scope->workspace_ : nullptr) {
  if (workspace_ != nullptr) workspace_->fit_ = Arena::Fit::kEnd;
}

Stack::~Stack() {
  if (workspace_ != nullptr) workspace_->fit_ = Arena::Fit::kBest;
}

void* Routes::take(Bytes n) {
  if (OpScope* scope = this_threads_scope) return scope->workspace_.take_main(n, scope->name_);
  Workspace* workspace = active.load();
  if (workspace != nullptr && is_openmp_worker()) return workspace->take_side(n);
  return backend::take_outside(n);
}

void Routes::give_back(void* p) noexcept {
  if (OpScope* scope = this_threads_scope) {
    Workspace& workspace = scope->workspace_;
    if (workspace.contains(p)) {
      if (p < workspace.side_base_) return workspace.give_back_main(p);
      return workspace.give_back_from_elsewhere(p);
    }
  }
  if (all_count.load() > 0) {
    const std::scoped_lock lock(all_mutex);
    for (Workspace* workspace : all) {
      if (workspace->contains(p)) return workspace->give_back_from_elsewhere(p);
    }
  }
  backend::give_back_outside(p);
}

}  // namespace sluice::tensor
