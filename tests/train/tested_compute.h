/// Which functions of the model the tests of this folder run on: LibTorch's in builds that have it
/// (host/ and cuda/libtorch_compute.cpp), else stand-ins (stand_ins.cpp), so that the conductor
/// runs under the sanitizers; on an emulated CUDA runtime these are launched as kernels are
/// (cuda/launched_compute.cpp). CMake links one.
#pragma once

#include "engine/train/compute.h"

namespace sluice::train {

MakeCompute tested_compute();

}  // namespace sluice::train
