#include "engine/schedule/updates.h"

namespace sluice::schedule {

using enum Operand;

void UpdateWriter::update(Where where, const Buffers& gradient, BufferId record) {
  const BufferId fresh = fresh_slot(where, optimizer_tier());
  adam(where, gradient, fresh, record);
  bring_weights_home(where, fresh, record);
}

BufferId UpdateWriter::update_apart(Where where, const Buffers& gradient, BufferId record) {
  const BufferId fresh = waiting_slot(where, optimizer_tier());
  adam(where, gradient, fresh, record);
  return fresh;
}

void UpdateWriter::adam(Where where, const Buffers& gradient, BufferId fresh, BufferId record) {
  const BufferId state = setup_.updates_on_device() ? home_state(where) : read_state(where);
  const Bytes more = (gradient.size() - 1) * size_of(setup_.compute);
  const Cost cost{.bytes =
                      static_cast<double>(chunk(where).elems * (zero::kUpdateBytesPerElem + more))};
  Bindings operands{{kRecord, record},
                    {kState, state},
                    {kGradient, where_optimizer_reads(where, gradient, record)},
                    {kFresh, fresh}};
  if (setup_.splits_masters()) operands.emplace_back(kWeights, home_param(where));
  arithmetic(setup_.splits_masters() ? OpId::kAdamSplit : OpId::kAdam, optimizer_tier(), where,
             operands, cost, record);
  bring_state_home(where, state, record);
}

Buffers UpdateWriter::where_optimizer_reads(Where where, Buffers gradient, BufferId record) {
  const GradientRoute& route = catalog_.routes[static_cast<std::size_t>(where.segment)];
  if (!route.copied_by_chunk) return gradient;
  const Bytes bytes = chunk(where).elems * size_of(route.dtype);
  const OpId copies = setup_.updates_on_device() ? OpId::kFetchGradient : OpId::kOffloadGradient;
  for (BufferId& term : gradient) {
    term = moved(copies, where, term, catalog_.gradient_chunks.at(bytes), record);
  }
  return gradient;
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
