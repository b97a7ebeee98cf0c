#include "engine/compute/model_ops.h"
#include "tests/train/tested_compute.h"

namespace sluice::train {

MakeCompute tested_compute() {
  return compute::on_libtorch();
}

}  // namespace sluice::train
