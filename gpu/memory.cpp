#include "gpu/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/pages.h"
#include "gpu/backend_memory.h"
#include "gpu/device.h"

namespace sluice::gpu {

struct DeviceBlock::Ledger {
  Ledger(Bytes budget_in, Reach reach_in) : budget(budget_in), reach(reach_in) {}

  void reserve(Bytes n) {
    const std::lock_guard lock(mutex);
    const Bytes free = budget - used;
    const Bytes whole = round_up(n, kAlignment);  // less than n where numbers end
    SLUICE_CHECK(n <= whole && whole <= free, kBudget,
                 fmt::format("gpu: asked {}, {} free of {}; raise tiers.gpu.limit, or move more to "
                             "the cpu tier (zero_optimization.offload_*)",
                             format_bytes(n), format_bytes(free), format_bytes(budget)));
    used += whole;
    peak = std::max(peak, used);
  }
  void release(Bytes n) {
    const std::lock_guard lock(mutex);
    used -= round_up(n, kAlignment);
  }

  const Bytes budget;
  const Reach reach;
  mutable std::mutex mutex;
  Bytes used = 0;
  Bytes peak = 0;
};

DeviceBlock::DeviceBlock(DeviceBlock&& other) noexcept
    : ledger_(std::move(other.ledger_)),
      data_(std::exchange(other.data_, nullptr)),
      taken_(std::exchange(other.taken_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

DeviceBlock& DeviceBlock::operator=(DeviceBlock&& other) noexcept {
  DeviceBlock old(std::move(*this));
  ledger_ = std::move(other.ledger_);
  data_ = std::exchange(other.data_, nullptr);
  taken_ = std::exchange(other.taken_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

DeviceBlock::~DeviceBlock() {
  if (data_ == nullptr) return;
  backend::give_device_memory({data_, taken_}, round_up(size_, kAlignment));
  ledger_->release(size_);
}

DeviceHeap::DeviceHeap(Bytes budget, Reach reach)
    : ledger_(std::make_shared<DeviceBlock::Ledger>(budget, reach)) {}

DeviceBlock DeviceHeap::allocate(Bytes n) {
  if (n == 0) return {};
  ledger_->reserve(n);
  const auto memory = backend::take_device_memory(round_up(n, kAlignment), ledger_->reach);
  if (memory.data == nullptr) {
    ledger_->release(n);
    throw Error(Errc::kBudget,
                fmt::format("gpu: asked {}, within the budget of {} ({} in use), but the device "
                            "has {} free of {}; lower tiers.gpu.limit, or end what else uses the "
                            "device",
                            format_bytes(n), format_bytes(budget()), format_bytes(used()),
                            format_bytes(free_memory()), format_bytes(device().memory)));
  }
  DeviceBlock block;
  block.ledger_ = ledger_;
  block.data_ = memory.data;
  block.taken_ = memory.taken;
  block.size_ = n;
  return block;
}

Bytes DeviceHeap::used() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->used;
}

Bytes DeviceHeap::peak() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->peak;
}

Bytes DeviceHeap::budget() const {
  return ledger_->budget;
}

PinnedSlab::PinnedSlab(Bytes n, Pin when) {
  if (n == 0) return;
  data_ = map_pages(n);
  SLUICE_CHECK(data_ != nullptr, kBudget,
               fmt::format("cpu: asked {} of pinned memory and the system refused; lower "
                           "tiers.cpu.limit",
                           format_bytes(n)));
  size_ = n;
  if (when == Pin::kNow) pin();
}

void PinnedSlab::pin() {
  if (data_ != nullptr) backend::pin(data_, round_up(size_, kAlignment));
}

PinnedSlab::PinnedSlab(PinnedSlab&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedSlab& PinnedSlab::operator=(PinnedSlab&& other) noexcept {
  const PinnedSlab old(std::move(*this));
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

PinnedSlab::~PinnedSlab() {
  if (data_ == nullptr) return;
  const Bytes pages = round_up(size_, kAlignment);
  backend::unpin(data_, pages);
  unmap_pages(data_, pages);
}

}  // namespace sluice::gpu
