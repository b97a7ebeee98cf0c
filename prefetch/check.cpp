#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "prefetch/program.h"

namespace sluice::prefetch {
namespace {

/// Who asks for a buffer: an op, or the table of persistents. Put into words only when refused.
struct Asker {
  const Op* op = nullptr;
  BufferId persistent = 0;
  std::string text() const {
    return op != nullptr ? describe(*op) : fmt::format("persistent buffer {}", persistent);
  }
};

/// The pool exists and one of its slots holds the buffer.
void check_buffer(const Program& program, const Asker& who, const Buffer& buffer,
                  const Pools& pools) {
  if (buffer.pool == kNoPool) return;
  SLUICE_CHECK(buffer.pool < pools.size(), kLogic,
               fmt::format("{}: {} names pool {} of {}", program.name(), who.text(), buffer.pool,
                           pools.size()));
  const Pool& pool = pools[buffer.pool];
  SLUICE_CHECK(buffer.bytes <= pool.slot, kLogic,
               fmt::format("{}: {} puts {} of {} into pool '{}', whose slots have {}",
                           program.name(), who.text(), format_bytes(buffer.bytes),
                           name_of(buffer.tag), pool.name, format_bytes(pool.slot)));
}

/// Each leaf is written before it is read; a read of what nobody wrote is a bug in the schedule.
void check_initialised(const Program& program, std::size_t i, std::vector<bool>& written,
                       Initialised& initialised) {
  const LeafId first = program.transients().first_leaf();
  const auto& access = program.accesses(i);
  for (const LeafId leaf : access.reads) {
    const bool known = leaf < first ? initialised.contains(leaf) : written[leaf - first];
    SLUICE_CHECK(
        known, kLogic,
        fmt::format("{}: {} (op {}) reads a {} buffer that nothing has written", program.name(),
                    describe(program.ops()[i]), i, leaf < first ? "persistent" : "transient"));
  }
  for (const LeafId leaf : access.writes) {
    if (leaf < first) {
      initialised.insert(leaf);
    } else {
      written[leaf - first] = true;
    }
  }
}

void check_lane(const Program& program, const Op& op, const Lanes& lanes) {
  SLUICE_CHECK(op.lane < lanes.size(), kLogic,
               fmt::format("{}: {} names lane {} of {}", program.name(), describe(op), op.lane,
                           lanes.size()));
  SLUICE_CHECK(lanes[op.lane].width > 0, kLogic,
               fmt::format("{}: {} is on lane '{}', which runs nothing: its width is 0",
                           program.name(), describe(op), lanes[op.lane].name));
}

void check_predicate(const Program& program, const Op& op) {
  if (!op.predicate) return;
  SLUICE_CHECK(program.info(op.predicate->record).pool != kNoPool, kLogic,
               fmt::format("{}: {} asks a record that has no bytes", program.name(), describe(op)));
}

/// Walks the serial run, counting live slots per pool; calls `grown(who, buffer, live)` after each
/// slot that is taken. `initialised` changes only when all is well.
template <class Grown>
Minimum walk(const Program& program, const Pools& pools, const Lanes& lanes,
             Initialised& initialised, Grown grown) {
  Initialised known = initialised;
  std::vector<std::uint32_t> live(pools.size(), 0);
  for (const BufferId id : program.residents().roots()) {
    const Buffer& buffer = program.residents().info(id);
    const Asker who{nullptr, id};
    check_buffer(program, who, buffer, pools);
    if (buffer.pool != kNoPool) grown(who, buffer, ++live[buffer.pool]);
  }
  std::vector<std::uint32_t> peak = live;
  const BufferTable& transients = program.transients();
  std::vector<std::uint32_t> users(transients.end_buffer() - transients.first_buffer());
  for (const BufferId id : transients.roots())
    users[id - transients.first_buffer()] = program.users(id);
  std::vector<bool> written(transients.end_leaf() - transients.first_leaf(), false);

  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    check_lane(program, op, lanes);
    check_predicate(program, op);
    check_initialised(program, i, written, known);
    for (const BufferId id : program.accesses(i).defines) {
      const Buffer& buffer = transients.info(id);
      check_buffer(program, {&op}, buffer, pools);
      if (buffer.pool == kNoPool) continue;
      peak[buffer.pool] = std::max(peak[buffer.pool], ++live[buffer.pool]);
      grown(Asker{&op}, buffer, live[buffer.pool]);
    }
    for (const BufferId id : program.accesses(i).roots) {
      const Buffer& buffer = transients.info(id);
      if (--users[id - transients.first_buffer()] == 0 && buffer.pool != kNoPool)
        --live[buffer.pool];
    }
  }
  initialised = std::move(known);
  return {std::move(peak)};
}

}  // namespace

Minimum serial_minimum(const Program& program, const Pools& pools, const Lanes& lanes,
                       Initialised& initialised) {
  return walk(program, pools, lanes, initialised,
              [](const Asker&, const Buffer&, std::uint32_t) {});
}

Minimum check(const Program& program, const Pools& pools, const Lanes& lanes,
              Initialised& initialised) {
  return walk(
      program, pools, lanes, initialised,
      [&](const Asker& who, const Buffer& buffer, std::uint32_t live) {
        const Pool& pool = pools[buffer.pool];
        SLUICE_CHECK(
            live <= pool.slots, kBudget,
            fmt::format("{}: {} asks pool '{}' ({} tier) for {} of {}, 0 B free of {} ({} slots "
                        "of {}): give the tier more memory, or move {} out of it",
                        program.name(), who.text(), pool.name, name_of(pool.tier),
                        format_bytes(buffer.bytes), name_of(buffer.tag),
                        format_bytes(pool.slot * pool.slots), pool.slots, format_bytes(pool.slot),
                        name_of(buffer.tag)));
      });
}

}  // namespace sluice::prefetch
