/// A plan with every pool at its serial minimum. A private header of this room.
#pragma once

#include <vector>

#include "engine/plan/plan.h"

namespace sluice::plan {

/// Writes and verifies every program of the run. Throws kConfig when a step has more forwards than
/// are planned. Looks at no limits.
Plan write_draft(const schedule::Setup& setup, std::int64_t evaluation_batches);

/// More chunks than this only make the program longer.
inline constexpr std::uint64_t kEnoughChunks = 2048;

/// What `sub_group_size` may become, the one to prefer first: itself when it is given; for auto,
/// sizes that cut this model differently and not into too many chunks.
std::vector<schedule::Setup> chunk_choices(const schedule::Setup& setup);

/// Bytes that the tiers together lack for the serial minimum: 0 when it fits.
Bytes missing(const Plan& draft, const Limits& limits);
/// The same of one tier, and of the host memory that gpu and cpu may share.
Bytes missing_in(prefetch::Tier tier, const Plan& draft, const Limits& limits);
Bytes missing_of_host(const Plan& draft, const Limits& limits);

}  // namespace sluice::plan
