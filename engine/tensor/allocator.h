/// Makes LibTorch take its CPU memory from us.
#pragma once

namespace sluice::tensor {

/// From now on LibTorch's CPU tensors come from the workspace of the op that is running (see
/// OpScope) and from 64-byte-aligned malloc outside ops. Later calls do nothing.
///
/// Thread  the main thread, before others use LibTorch; tensors made earlier stay as they are
void install_allocator();

}  // namespace sluice::tensor
