/// What an NVMe drive itself says of its wear.
///
/// Paper   NVM Express Base Specification, SMART / health information (log page 2)
/// Thread  any
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

namespace sluice::bench {

struct Wear {
  unsigned percent_used = 0;  ///< of what its maker says it endures; may be more than 100
  double written = 0;         ///< bytes, in all its life
};

using HealthPage = std::array<std::byte, 512>;
Wear wear_in(const HealthPage& page);

/// Asks "nvme0n1". nullopt: it is no NVMe drive, or this user may not ask it; root may.
std::optional<Wear> wear_of(const std::string& drive);

/// Bytes that it still takes, no fewer by its own count, which knows whole percents only. 0: too
/// little is used to tell, or nothing is left.
double endurance_left(const Wear& wear);

/// "3% used, 412 TB written".
std::string text_of(const Wear& wear);

}  // namespace sluice::bench
