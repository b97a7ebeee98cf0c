/// The values a tensor starts from: a function of (seed, tensor name, element) and of nothing else.
///
/// The same bits for every cut, order, thread and machine: Philox gives 128 bits per element, and
/// only integers and one IEEE multiplication turn them into a number (no libm).
/// Init::kNormal is the sum of eight uniform 16-bit numbers, centred and scaled to `init_std`: mean
/// and variance are those of a normal deviate, the kurtosis is 2.85 instead of 3, and nothing lies
/// beyond 4.9 standard deviations. The eight numbers are the halves of the four words that Philox
/// gives for the counter {element, name}, the name as its 64-bit FNV-1a hash, and the key {seed}:
/// each is two words, the low one first.
///
/// Thread  any
#pragma once

#include <cstdint>
#include <span>

#include "engine/shape/model.h"

namespace sluice::shape {

/// Fills `out` with elements first_element, first_element + 1, ... of the tensor, row by row.
/// Throws kLogic when that leaves the tensor.
void initial_values(std::uint64_t seed, const TensorSpec& tensor, std::uint64_t first_element,
                    std::span<float> out);

}  // namespace sluice::shape
