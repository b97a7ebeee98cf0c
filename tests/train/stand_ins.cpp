#include "tests/train/hash_compute.h"
#include "tests/train/tested_compute.h"

namespace sluice::train {

MakeCompute tested_compute() {
  return hash_compute();
}

}  // namespace sluice::train
