/// The instruction sets that this machine can run, and the kernels of rows.h written for each.
#pragma once

#include <string_view>
#include <vector>

namespace sluice::model::rows {

struct Kernels;

struct Isa {
  std::string_view name;
  const Kernels* kernels;
};

/// Best first; "base", which every CPU runs, last.
const std::vector<Isa>& available_isas();

/// Those of the best, or of the last use().
const Kernels& kernels();
/// For tests and measurements: all give the same bits. While no kernel runs.
void use(const Isa& isa);

}  // namespace sluice::model::rows
