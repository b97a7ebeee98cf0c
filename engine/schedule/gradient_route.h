/// Where the gradient of a segment goes, from the op that computes it to the optimizer. Decided
/// once per segment, from the gradient's home, who shares memory with whom, and how many
/// contributions there are; the program, its pools and its handlers all follow it.
#pragma once

#include "engine/schedule/setup.h"
#include "prefetch/residents.h"

namespace sluice::schedule {

struct GradientRoute {
  prefetch::Tier home = prefetch::Tier::kCpu;  ///< kGpu or kCpu: where the step's gradient lies
  DType dtype = DType::kF32;                   ///< of the step's gradient, or of its terms
  int uses = 1;                                ///< how many blocks name it: 2 for a tied embedding
  /// Contributions of micro-batches and uses are added into an fp32 sum, the gradient. Else there
  /// is one contribution, and it is the gradient, or, where `apart`, two.
  bool summed = false;
  /// There is one contribution of each use, and they stay as they are: the norm and the optimizer
  /// read both, and their sum is nowhere written.
  bool apart = false;
  /// There is one of each, but what the step leaves is one sum. The embedding's contribution begins
  /// it; the head's, which comes first, waits at home as it is.
  bool head_waits = false;
  /// A contribution is written in device memory and copied to the host.
  bool offloaded = false;
  /// The optimizer gets copies of the chunks of a gradient that lies where it does not work.
  bool copied_by_chunk = false;

  /// The compute lane writes its contribution where the step's gradient lies.
  bool written_at_home() const { return !summed && !apart && !offloaded; }
  /// Contributions lie in host memory until they are added to a sum there, or are read as they are:
  /// copied to it, or, where the device has the same memory, those that wait are written there.
  bool staged() const {
    return home == prefetch::Tier::kCpu && (apart || (offloaded ? summed : head_waits));
  }
  /// That of the head, or of the embedding, is written there.
  bool written_staged(bool head) const { return staged() && !offloaded && (apart || head); }
  /// To device memory of its own: of a tied tensor's two, at least the embedding's.
  bool written_on_device() const { return !written_at_home() && !written_staged(false); }
};

GradientRoute gradient_route(const Setup& setup, int segment);

}  // namespace sluice::schedule
