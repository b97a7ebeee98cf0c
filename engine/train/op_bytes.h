/// One op, resolved: its operands as bytes. What the handlers work on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/executor/driver.h"
#include "engine/memory/slot_memory.h"
#include "engine/schedule/ops.h"
#include "engine/train/record.h"

namespace sluice::train {

/// For the numbers of a Where that are set.
inline std::size_t index(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

class OpBytes {
 public:
  using Bytes = std::span<std::byte>;

  schedule::OpId id{};
  prefetch::Where where;
  std::uint64_t tag = 0;  ///< as Tag packs it

  /// Operands of one name are bound together.
  void bind(schedule::Operand name, Bytes bytes);
  bool has(schedule::Operand name) const { return !all(name).empty(); }
  /// In the order in which the program lists them.
  std::span<const Bytes> all(schedule::Operand name) const;
  /// The only one of its name; throws kLogic when there is none, or several. Bytes on nvme have a
  /// size and no address.
  Bytes operator[](schedule::Operand name) const;
  template <class T>
  std::span<T> values(schedule::Operand name) const {
    return as<T>((*this)[name]);
  }
  /// The same op, with addresses that work of the device may use (gpu/local.h).
  OpBytes local() const;
  template <class T>
  static std::span<T> as(Bytes bytes) {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  std::vector<schedule::Operand> names_;
  std::vector<Bytes> bytes_;
};

/// Of a buffer that the op names and that is not on nvme.
std::byte* address(const executor::OpContext& context, prefetch::BufferId id,
                   const memory::SlotMemory& memory);
OpBytes resolve(const executor::OpContext& context, const memory::SlotMemory& memory);

/// The op's predicate, looked up in the record that an earlier op wrote. True without one.
bool lets_run(const executor::OpContext& context, const memory::SlotMemory& memory);

/// A buffer in the nvme tier, or a part of one.
struct DriveBytes {
  const nvme::Extent& extent;
  Bytes offset;
  Bytes bytes;
};
DriveBytes drive_bytes(const executor::OpContext& context, schedule::Operand name,
                       const memory::SlotMemory& memory);
/// For people: the files and offsets of all that the op names on drives; empty where that is
/// nothing.
std::string drive_place(const executor::OpContext& context, const memory::SlotMemory& memory);

/// What a program of the stream is about, packed into the driver's tag.
struct Tag {
  enum class Kind : std::uint8_t {
    kInit,
    kStep,
    kDrain,
    kEvaluation,
    kCheckpoint,
    kPendingCheckpoint,  ///< with a gradient that waits
    kFinal
  } kind = Kind::kInit;
  std::int64_t step = 0;  ///< of kInit and the checkpoints: steps done

  std::uint64_t pack() const {
    return (static_cast<std::uint64_t>(kind) << 56) | static_cast<std::uint64_t>(step);
  }
  static Tag unpack(std::uint64_t tag) {
    return {static_cast<Kind>(tag >> 56), static_cast<std::int64_t>(tag & ((1ULL << 56) - 1))};
  }
};

}  // namespace sluice::train
