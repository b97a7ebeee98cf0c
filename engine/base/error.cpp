#include "engine/base/error.h"

namespace sluice {

int exit_code(Errc code) noexcept {
  switch (code) {
    case Errc::kConfig:
      return 2;
    case Errc::kBudget:
    case Errc::kEnv:
    case Errc::kDevice:
      return 3;
    case Errc::kIo:
    case Errc::kFormat:
      return 4;
    case Errc::kCheckpoint:
      return 5;
    case Errc::kNonFinite:
      return 6;
    case Errc::kWatchdog:
      return 7;
    case Errc::kComm:
    case Errc::kLogic:
      return 1;
  }
  return 1;
}

}  // namespace sluice
