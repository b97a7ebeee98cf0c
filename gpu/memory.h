/// Memory that the device computes in, under a budget, and host memory that it copies from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/base/units.h"

namespace sluice::gpu {

/// Who may read and write device memory by its address.
enum class Reach : std::uint8_t {
  kHostToo,  ///< where the device's memory is host memory, host code as well
  kDevice    ///< the device alone; it finds the bytes through local.h
};

/// Device memory, begun on a multiple of kAlignment; its content is undefined until written.
///
/// Owns    the memory, and its part of the budget: both are given back with the block, which may
///         outlive the heap. Streams do not hold it: drop it after their events are done
/// Thread  one thread at a time; may be dropped on another
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(DeviceBlock&& other) noexcept;
  DeviceBlock& operator=(DeviceBlock&& other) noexcept;
  ~DeviceBlock();

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }  ///< as asked

 private:
  friend class DeviceHeap;
  struct Ledger;
  std::shared_ptr<Ledger> ledger_;
  std::byte* data_ = nullptr;
  std::byte* taken_ = nullptr;  // the backend's
  Bytes size_ = 0;
};

/// Hands out device memory until a budget is reached. Each block counts in whole kAlignment, and is
/// an allocation of the device's: who needs many pieces takes one block and cuts it.
///
/// Thread  any
class DeviceHeap {
 public:
  explicit DeviceHeap(Bytes budget, Reach reach = Reach::kHostToo);

  /// Throws  kBudget when the budget, or the device, has not that much left; nothing has changed
  /// then. Zero bytes are a block without memory.
  DeviceBlock allocate(Bytes n);

  Bytes used() const;
  Bytes peak() const;  ///< the most that was ever used at once
  Bytes budget() const;

 private:
  std::shared_ptr<DeviceBlock::Ledger> ledger_;  // knows the reach
};

/// The most host memory that this process lets the device pin; slabs beyond it are plain memory,
/// and that is said once. Without a call: as much as the system allows. A device that computes in
/// host memory pins none.
///
/// Thread  any; holds for slabs that are made later
void set_pinned_limit(Bytes limit);

enum class Pin : std::uint8_t {
  kNow,
  kLater  ///< by pin()
};

/// Host memory that copies to and from the device run from at full speed, begun on a multiple of
/// kAlignment. Slow to make: take large ones, rarely. Where the system refuses to pin it, a warning
/// says so once, and it is plain memory: copies from it are slower.
///
/// Pinning makes every page that is not there, on the thread that asks. Who wants that done by
/// several touches them first and pins later. engine/base/nodes.h says on which nodes they lie.
///
/// Owns    the memory. Streams do not hold it: drop it after their events are done
class PinnedSlab {
 public:
  PinnedSlab() = default;
  /// Throws  kBudget when the system has not that much left
  explicit PinnedSlab(Bytes n, Pin when = Pin::kNow);
  PinnedSlab(PinnedSlab&& other) noexcept;
  PinnedSlab& operator=(PinnedSlab&& other) noexcept;
  ~PinnedSlab();

  /// Once, of one that was to be pinned later. Until then copies from it are right and slower.
  void pin();

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }  ///< as asked

 private:
  std::byte* data_ = nullptr;
  Bytes size_ = 0;
};

}  // namespace sluice::gpu
