#include "engine/memory/resident.h"

#include <fstream>
#include <string>

namespace sluice::memory {

std::optional<Bytes> peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    Bytes kib = 0;
    if (key == "VmHWM:" && status >> kib) return kib * 1_KiB;
    status.ignore(1 << 16, '\n');
  }
  return std::nullopt;
}

}  // namespace sluice::memory
