/// Where and how the optimizer's arithmetic runs. None of it shows in the bits.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice::cpu_adam {

enum class Isa : std::uint8_t { kAuto, kAvx512, kAvx2, kSse2, kNeon, kScalar };

enum class Stores : std::uint8_t {
  kAuto,       ///< a short probe at start decides
  kStreaming,  ///< past the caches
  kCached
};

inline constexpr unsigned kMaxThreads = 4096;

struct Options {
  std::optional<unsigned> threads;  ///< nullopt = auto: every core
  Isa isa = Isa::kAuto;
  Stores stores = Stores::kAuto;
};

}  // namespace sluice::cpu_adam
