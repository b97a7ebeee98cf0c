/// A plan with every pool at its serial minimum. A private header of this room.
#pragma once

#include <optional>
#include <vector>

#include "engine/plan/budget.h"
#include "engine/plan/plan.h"

namespace sluice::plan {

/// Writes and verifies every program of the run. Looks at no limits. nullopt: the budget does not
/// afford it. Throws kConfig when nobody could afford it: too many forwards, chunks, or both.
std::optional<Plan> write_draft(const schedule::Setup& setup, std::int64_t evaluation_batches,
                                Budget& budget);

/// More chunks than this only make the program longer.
inline constexpr std::uint64_t kEnoughChunks = 2048;

/// What `sub_group_size` may become, the one to prefer first: itself when it is given; for auto,
/// sizes that cut this model differently and not into too many chunks. At most kChunkChoices.
std::vector<schedule::Setup> chunk_choices(const schedule::Setup& setup,
                                           std::int64_t evaluation_batches);
inline constexpr std::size_t kChunkChoices = 5;

/// When the optimizer may work, the one to prefer first. Arriving takes all micro-batches through
/// the blocks together: only their last one makes a gradient whole. Delayed may: else new weights
/// of the whole model wait for the last one.
std::vector<schedule::Setup> update_choices(const schedule::Setup& setup);
schedule::Setup with_update(schedule::Setup setup, schedule::Update update);

/// How many micro-batches may go through the blocks together, the most first: where weights are
/// streamed or updates delayed all that the setup says, half, and so on down to one; else what it
/// says. Fewer take less memory for activations, and fetch streamed weights more often.
std::vector<schedule::Setup> sweep_choices(const schedule::Setup& setup,
                                           std::int64_t evaluation_batches);

/// With the fewest micro-batches together, or with all where updates are delayed, the first choice
/// of updates and chunks that fits; else the update that lacks less, with the last choice of
/// chunks. nullopt: the budget does not afford to find out.
std::optional<Plan> smallest_draft(const schedule::Setup& setup, const Limits& limits,
                                   std::int64_t evaluation_batches, Budget& budget);

/// Bytes that the tiers together lack for the serial minimum: 0 when it fits.
Bytes missing(const Plan& draft, const Limits& limits);
/// The same of one tier, and of the host memory that gpu and cpu may share.
Bytes missing_in(prefetch::Tier tier, const Plan& draft, const Limits& limits);
Bytes missing_of_host(const Plan& draft, const Limits& limits);

}  // namespace sluice::plan
