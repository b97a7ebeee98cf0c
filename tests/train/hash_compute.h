/// Functions of the model without LibTorch: every value that an op writes depends on every byte
/// that it reads, so one wrong, late or early byte anywhere in a run changes its losses and
/// weights. As with the real ones, a layer that keeps its forward gives the same bits as one that
/// runs it again.
#pragma once

#include "engine/train/compute.h"

namespace sluice::train {

MakeCompute hash_compute();

}  // namespace sluice::train
