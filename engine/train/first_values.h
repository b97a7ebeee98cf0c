/// What a model starts from: drawn from the seed, or read from weights as they were saved.
///
/// Thread  fill(): any, several at once
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "engine/shape/model.h"

namespace sluice::train {

class FirstValues {
 public:
  virtual ~FirstValues() = default;
  /// Elements first_element, first_element + 1, ... of the tensor, row by row.
  virtual void fill(const shape::TensorSpec& tensor, std::uint64_t first_element,
                    std::span<float> out) const = 0;
};

std::unique_ptr<FirstValues> drawn_values(std::uint64_t seed);

/// Reads each piece when it is asked for, and nothing twice. Throws kFormat, here when a tensor of
/// the model is missing, has another shape, or one belongs to no part of it; in fill() when a
/// number is not finite. Throws kIo.
std::unique_ptr<FirstValues> stored_values(const std::filesystem::path& weights,
                                           const shape::Model& model);

}  // namespace sluice::train
