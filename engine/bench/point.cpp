#include "engine/bench/point.h"

namespace sluice::bench {

const char* name_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::kRead:
      return "read";
    case Traffic::kWrite:
      return "write";
    case Traffic::kMixed:
      return "mixed";
  }
  return "";
}

const char* name_of(nvme::Engine engine) {
  switch (engine) {
    case nvme::Engine::kAuto:
      return "auto";
    case nvme::Engine::kIoUring:
      return "io_uring";
    case nvme::Engine::kLibaio:
      return "libaio";
    case nvme::Engine::kThreads:
      return "threads";
  }
  return "";
}

}  // namespace sluice::bench
