/// The bytes of a work with hardly any arithmetic on them: no program that moves these bytes is
/// much faster.
///
/// Spans begin on 64-byte lines and are multiples of 64 bytes. Streaming stores, where this
/// processor has none, are cached ones.
///
/// Thread  any
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu_adam/options.h"

namespace sluice::bench {

/// Of the same number of parameters each, 4 bytes of each moment and of the weights; gradient and
/// published weights have 2 or 4.
struct UpdateBytes {
  std::span<std::byte> master, m, v;
  std::span<const std::byte> gradient;
  std::span<std::byte> published;
};

/// Reads and writes what an update does: state becomes state ^ (gradient & mark), the published
/// weights gradient ^ mark. With a mark of 0, which no compiler knows of, the state stays as it is.
void touch_update(cpu_adam::Stores stores, const UpdateBytes& bytes, std::uint32_t mark);

/// Every word of them, so that it is read: the exclusive or.
std::uint32_t touch_read(std::span<const std::byte> bytes);

void touch_copy(cpu_adam::Stores stores, std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace sluice::bench
