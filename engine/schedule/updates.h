/// What programs that update weights have in common, whichever step's gradients they take. A
/// private header of this room.
#pragma once

#include "engine/schedule/writer.h"

namespace sluice::schedule {

class UpdateWriter : public ProgramWriter {
 protected:
  using ProgramWriter::ProgramWriter;

  BufferId new_record() { return transient(catalog_.records, catalog_.sizes.record); }

  /// New weights of one chunk, home at once. `gradient`: of the chunk, where it lies at home; of
  /// two terms, whose sum it is, or one.
  void update(Where where, const Buffers& gradient, BufferId record);
  /// The same into a slot, while those at home are still read; that slot.
  BufferId update_apart(Where where, const Buffers& gradient, BufferId record);

  /// What was decided of gradients that wait, so that this program may decide of its own.
  void take_records();
  BufferId taken_record(int segment) const;

 private:
  prefetch::Tier optimizer_tier() const {
    return setup_.updates_on_device() ? prefetch::Tier::kGpu : prefetch::Tier::kCpu;
  }
  void adam(Where where, const Buffers& gradient, BufferId fresh, BufferId record);
  Buffers where_optimizer_reads(Where where, Buffers gradient, BufferId record);

  Buffers taken_;  // as Catalog::pending_records
};

}  // namespace sluice::schedule
