#include "engine/schedule/updates.h"

namespace sluice::schedule {

using enum Operand;

void UpdateWriter::update(Where where, BufferId gradient, BufferId record) {
  const BufferId fresh = fresh_slot(where, optimizer_tier());
  adam(where, gradient, fresh, record);
  bring_weights_home(where, fresh, record);
}

BufferId UpdateWriter::update_apart(Where where, BufferId gradient, BufferId record) {
  const BufferId fresh = waiting_slot(where, optimizer_tier());
  adam(where, gradient, fresh, record);
  return fresh;
}

void UpdateWriter::adam(Where where, BufferId gradient, BufferId fresh, BufferId record) {
  const BufferId state = setup_.updates_on_device() ? home_state(where) : read_state(where);
  const Cost cost{.bytes = static_cast<double>(chunk(where).elems * zero::kUpdateBytesPerElem)};
  arithmetic(OpId::kAdam, optimizer_tier(), where,
             {{kRecord, record},
              {kState, state},
              {kGradient, where_optimizer_reads(where, gradient, record)},
              {kFresh, fresh}},
             cost, record);
  bring_state_home(where, state, record);
}

BufferId UpdateWriter::where_optimizer_reads(Where where, BufferId gradient, BufferId record) {
  const GradientRoute& route = catalog_.routes[static_cast<std::size_t>(where.segment)];
  if (!route.copied_by_chunk) return gradient;
  const Bytes bytes = chunk(where).elems * size_of(route.dtype);
  return moved(setup_.updates_on_device() ? OpId::kFetchGradient : OpId::kOffloadGradient, where,
               gradient, catalog_.gradient_chunks.at(bytes), record);
}

void UpdateWriter::take_records() {
  for (const BufferId pending : catalog_.pending_records) {
    taken_.push_back(new_record());
    op(OpId::kTakeRecord, {}, {{kSource, pending}, {kRecord, taken_.back()}});
  }
}

BufferId UpdateWriter::taken_record(int segment) const {
  return setup_.clips_segments ? taken_[static_cast<std::size_t>(segment)] : taken_.front();
}

}  // namespace sluice::schedule
