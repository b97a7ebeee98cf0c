/// Makes LibTorch take the memory that ops compute in from us.
#pragma once

namespace sluice::tensor {

/// From now on LibTorch's tensors on device() (view.h) come from the workspace of the op that is
/// running (see OpScope), and outside ops from 64-byte-aligned malloc or, on a CUDA device, from
/// blocks of their own. CPU tensors beside a CUDA device stay LibTorch's. Later calls do nothing.
///
/// Thread  the main thread, before others use LibTorch; tensors made earlier stay as they are
void install_allocator();

}  // namespace sluice::tensor
