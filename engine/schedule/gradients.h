/// How a step collects gradients: where the compute lane writes them, what becomes of each, and
/// what of them the norm and the optimizer take. A private header of this room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/gradient_route.h"
#include "engine/schedule/updates.h"

namespace sluice::schedule {

class GradientWriter : public UpdateWriter {
 protected:
  GradientWriter(std::string name, const Setup& setup, const Catalog& catalog)
      : UpdateWriter(std::move(name), setup, catalog),
        gradients_(static_cast<std::size_t>(segments())),
        norms_(static_cast<std::size_t>(segments())) {}

  /// Where the compute lane writes the gradients of a block's segments, in their order: on the
  /// device, or at home where that is the same memory and they stay there as they are.
  Buffers contributions(int block);
  /// One of them is written: it becomes the segment's gradient or a term of it, or is added to it:
  /// micro-batch by micro-batch, each use of a tied segment in a sum of its own, or the head's when
  /// the embedding's is there. True when none is missing now; the segment's norms are taken then.
  bool collected(Where where, int block, BufferId contribution);

  /// By segment: the global order of grains.
  const Buffers& norms() const { return norms_; }
  /// What the optimizer takes of one chunk: a part of the gradient, or of its two terms.
  Buffers chunk_gradient(Where chunk);

 private:
  struct Gradient {
    // By the block that uses the segment: a sum, or the one contribution where none is made.
    std::map<int, BufferId> of_use = {};
    std::optional<BufferId> later = {};  // a contribution that is added when the sum has begun
    std::int64_t collected = 0;          // contributions
    std::vector<Buffers> parts = {};     // by chunk: of the whole, or of both uses that stay apart
  };

  const GradientRoute& route(int s) const { return catalog_.routes[static_cast<std::size_t>(s)]; }
  Gradient& gradient(int s) { return gradients_[static_cast<std::size_t>(s)]; }
  /// For the embedding's.
  bool waits(int s, int b) const { return route(s).head_waits && b > 0; }

  BufferId contribution(int s, int b);
  BufferId new_gradient(int s, int b);
  BufferId brought_home(Where where, int b, BufferId contribution);
  void add(Where where, int b, BufferId contribution);
  Buffers add_uses(int s);

  void complete(int s);
  void take_norms(int s, const Buffers& all);
  void keep_parts(int s, const Buffers& all);

  /// Of fp32 sums, read or written so many times.
  Cost sum_cost(int s, int times) const {
    return {.bytes = static_cast<double>(setup_.segment_elems(s) * size_of(DType::kF32)) * times};
  }

  std::vector<Gradient> gradients_;  // by segment
  Buffers norms_;                    // likewise
};

}  // namespace sluice::schedule
