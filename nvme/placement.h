/// Which bytes lie on which path: arithmetic only, no I/O.
///
/// Thread  any
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/units.h"

namespace sluice::nvme {

/// A folder as the placement sees it.
struct Place {
  std::string path;
  std::uint64_t device = 0;  ///< folders of one device share its free bytes
  Bytes free = 0;            ///< of the device
  double speed = 1;          ///< beside the others
};

/// How many bytes each place gets of `capacity`, in multiples of kAlignment: as its speed is to
/// that of the others, but a place with less room gives the rest of its share to them.
///
/// Throws  kBudget with need and free when all of them together are too small
std::vector<Bytes> share_capacity(const std::vector<Place>& places, Bytes capacity);

/// Bytes in a row on one path.
struct Part {
  std::size_t path = 0;  ///< index
  Bytes offset = 0;
  Bytes bytes = 0;
};

/// A range of bytes of the line that Stripes lays over the paths.
struct Extent {
  Bytes begin = 0;
  Bytes bytes = 0;
};

/// One line of bytes over several paths, which take turns: in any long stretch of it each path has
/// as much as its share. Every byte of the shares is somewhere in the line, once.
class Stripes {
 public:
  /// What a turn holds at most.
  static constexpr Bytes kUnit = 2_MiB;

  /// `shares`: bytes per path, multiples of kAlignment.
  explicit Stripes(const std::vector<Bytes>& shares, Bytes unit = kUnit);

  Bytes bytes() const { return bytes_; }
  /// The range must lie inside the line.
  std::vector<Part> slice(Bytes begin, Bytes n) const;

 private:
  /// A stretch of the line in which the same turns come again and again.
  struct Zone {
    Bytes begin, bytes;
    Bytes unit;                      // of one turn
    std::vector<std::size_t> turns;  // whose each is
    std::vector<Bytes> at;           // by path: where its part of the zone begins
    std::vector<Bytes> per_round;    // by path: bytes in one round of turns
    std::vector<Bytes> before;       // by turn: bytes of the same path earlier in the round
  };
  void lay(std::vector<Bytes>& left, std::vector<Bytes>& used, std::vector<std::size_t> turns,
           Bytes unit);

  std::vector<Zone> zones_;  // in the order of the line
  Bytes bytes_ = 0;
};

}  // namespace sluice::nvme
