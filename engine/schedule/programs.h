/// The programs of a run. Each reads like the textbook loop; overlap is how they are executed.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/schedule/catalog.h"
#include "engine/schedule/setup.h"
#include "prefetch/program.h"

namespace sluice::schedule {

/// First values of every weight and its optimizer state, chunk by chunk.
std::shared_ptr<const prefetch::Program> init_program(const Setup& setup, const Catalog& catalog);

/// Which gradients a step makes new weights of. Where updates are not delayed: its own.
enum class Applies : std::uint8_t {
  kOwn,
  kNone,  ///< it leaves its own for the next
  kLast   ///< those that the step before left, while its own come and are left in their place
};

/// One training step: forward, backward, norm, decide, update.
/// `setup.sweep` micro-batches go through each block together; the bits do not depend on how many.
std::shared_ptr<const prefetch::Program> step_program(const Setup& setup, const Catalog& catalog,
                                                      Applies applies = Applies::kOwn);

/// New weights of the gradients that a step left.
std::shared_ptr<const prefetch::Program> drain_program(const Setup& setup, const Catalog& catalog);

/// The mean loss over `batches` micro-batches.
std::shared_ptr<const prefetch::Program> evaluation_program(const Setup& setup,
                                                            const Catalog& catalog,
                                                            std::int64_t batches);

enum class Saves : std::uint8_t {
  kState,
  kGradientToo  ///< that a step left
};

/// The state of every chunk into a checkpoint, which is whole when its last op has run. The next
/// step's update of a chunk waits for that chunk to be written, and for nothing else.
std::shared_ptr<const prefetch::Program> checkpoint_program(const Setup& setup,
                                                            const Catalog& catalog,
                                                            Saves saves = Saves::kState);

/// Hands every chunk of master weights to the file that is being written.
std::shared_ptr<const prefetch::Program> final_program(const Setup& setup, const Catalog& catalog);

}  // namespace sluice::schedule
