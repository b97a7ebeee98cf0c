#include "tests/model/harness.h"

namespace sluice::model {

at::Device device() {
  return at::kCPU;
}

}  // namespace sluice::model
