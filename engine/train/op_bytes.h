/// One op, resolved: its buffers as addresses. What the handlers work on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/executor/driver.h"
#include "engine/memory/slot_memory.h"
#include "engine/schedule/ops.h"
#include "engine/train/record.h"

namespace sluice::train {

/// Buffers in the order in which the program lists them (engine/schedule/ops.h); null on nvme.
struct OpBytes {
  schedule::OpId id{};
  prefetch::Where where;
  std::uint64_t tag = 0;
  const Record* record = nullptr;  ///< of a predicated op
  std::vector<std::byte*> reads, writes;

  /// The step's record says that this op does nothing.
  bool skipped() const { return record != nullptr && record->skip; }
};

std::byte* address(const executor::OpContext& context, prefetch::BufferId id,
                   const memory::SlotMemory& memory);

/// A buffer in the nvme tier, or a part of one.
struct DriveBytes {
  const nvme::Extent& extent;
  Bytes offset;
  Bytes bytes;
};
DriveBytes drive_bytes(const executor::OpContext& context, prefetch::BufferId id,
                       const memory::SlotMemory& memory);
OpBytes resolve(const executor::OpContext& context, const memory::SlotMemory& memory);

/// What a program of the stream is about, packed into the driver's tag.
struct Tag {
  enum class Kind : std::uint8_t { kOther, kStep, kEvaluation } kind = Kind::kOther;
  std::int64_t step = 0;

  std::uint64_t pack() const {
    return (static_cast<std::uint64_t>(kind) << 56) | static_cast<std::uint64_t>(step);
  }
  static Tag unpack(std::uint64_t tag) {
    return {static_cast<Kind>(tag >> 56), static_cast<std::int64_t>(tag & ((1ULL << 56) - 1))};
  }
};

}  // namespace sluice::train
