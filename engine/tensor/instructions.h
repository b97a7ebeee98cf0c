/// What LibTorch's products of matrices are made of on this processor.
#pragma once

#include <optional>
#include <string>

#include "engine/base/dtype.h"
#include "engine/tensor/process.h"

namespace sluice::tensor {

/// For people.
struct Lack {
  std::string reason;
  std::string remedy;
};

/// Whether there are no instructions here that multiply values of this type faster than fp32, or
/// oneDNN may not use them: LibTorch would emulate such products, or take the slow ones. nullopt:
/// there are, or it is not known.
///
/// [Note: bf16 without AMX] Intel's processors from Sapphire Rapids on have two instructions for
/// bf16. AMX is several times as fast as fp32. AVX512_BF16 takes two products at once, on one port
/// where fp32 has two: no more in a second, and LibTorch's way there takes a third longer (a step
/// of GPT-2 124M on an Emerald Rapids whose AMX is hidden from its guests: 2.9 s, in fp32 2.2 s).
/// On AMD's it is faster than fp32.
std::optional<Lack> lacks_products(DType type, const CodePaths& paths);

/// Whether oneDNN, of which LibTorch makes large products, has instructions for bf16 here, and MKL,
/// of which it makes small ones, takes none: as on a processor of AMD's.
bool only_onednn_multiplies_bf16(const CodePaths& paths);

}  // namespace sluice::tensor
