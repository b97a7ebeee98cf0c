/// Attention in tiles of queries and keys, in bf16, where LibTorch's kernel makes its products of
/// fp32.
///
/// [Note: Tiles] LibTorch's kernel asks MKL for the products of a head, and MKL takes the
/// instructions for bf16 of no processor but Intel's: on a Zen 4 it widens to fp32, in half of the
/// registers' width (GPT-2 124M, 2 x 256 tokens: a layer's attention takes 3.5 ms there and 8.6 ms
/// back, here a third). oneDNN, of which LibTorch's large products are made, uses them in small
/// ones too. These take 64 queries, and 64 keys or the values of a head, at a time; between them
/// each score is worked on where it lies in a cache, by kernels of rows.h.
///
/// All scores of a tile of queries are there before the first becomes a weight: their greatest is
/// known, and nothing is scaled again. What is summed is summed in fp32, and rounded once:
/// gradients of keys and values over the heads that share them, too.
#pragma once

#include <cstdint>

#include "engine/model/kernel.h"

namespace sluice::model {

/// Whether look() and look_backward() go this way: on such a processor, with no fewer heads of keys
/// in all sequences than threads. Memory is one piece per thread, in proportion to the tokens of a
/// row: back, 14 bytes for each value of a head's keys, and some 100 KiB. The number of tokens has
/// no say here: what long rows are measured to need is to do for short documents.
bool is_tiled(const Heads& heads);

/// bf16 on the host; the width of a head is even, at most 256. oneDNN refuses where it may not use
/// instructions for bf16.
Looked tiled_look(const Heads& heads, std::int64_t window);
Heads tiled_look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                          std::int64_t window);

}  // namespace sluice::model
