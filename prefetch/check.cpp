#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "prefetch/program.h"

namespace sluice::prefetch {
namespace {

void check_buffer(const Program& program, const Op& op, const Buffer& buffer, const Pools& pools) {
  if (buffer.pool == kNoPool) return;
  SLUICE_CHECK(buffer.pool < pools.size(), kLogic,
               fmt::format("{}: {} names pool {} of {}", program.name(), describe(op), buffer.pool,
                           pools.size()));
  SLUICE_CHECK(buffer.bytes <= pools[buffer.pool].slot, kLogic,
               fmt::format("{}: {} puts {} into a slot of pool {}", program.name(), describe(op),
                           format_bytes(buffer.bytes), pools[buffer.pool].name));
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

/// Walks the serial run, counting live slots per pool; calls `grown(op, root)` after each
/// definition.
template <class Grown>
std::vector<std::uint32_t> walk(const Program& program, const Pools& pools, const Lanes& lanes,
                                Initialised& initialised, Grown grown) {
  std::vector<std::uint32_t> live(pools.size(), 0);
  for (const BufferId id : program.residents().roots()) {
    const Buffer& buffer = program.residents().info(id);
    check_buffer(program, Op{}, buffer, pools);
    if (buffer.pool != kNoPool) ++live[buffer.pool];
  }
  std::vector<std::uint32_t> peak = live;
  const BufferTable& transients = program.transients();
  std::vector<std::uint32_t> users(transients.end_buffer() - transients.first_buffer());
  for (const BufferId id : transients.roots())
    users[id - transients.first_buffer()] = program.users(id);
  std::vector<bool> written(transients.end_leaf() - transients.first_leaf(), false);

  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    SLUICE_CHECK(op.lane < lanes.size(), kLogic,
                 fmt::format("{}: {} names lane {} of {}", program.name(), describe(op), op.lane,
                             lanes.size()));
    check_initialised(program, i, written, initialised);
    for (const BufferId id : program.accesses(i).defines) {
      const Buffer& buffer = transients.info(id);
      check_buffer(program, op, buffer, pools);
      if (buffer.pool == kNoPool) continue;
      peak[buffer.pool] = std::max(peak[buffer.pool], ++live[buffer.pool]);
      grown(op, buffer, live[buffer.pool]);
    }
    for (const BufferId id : program.accesses(i).roots) {
      const Buffer& buffer = transients.info(id);
      if (--users[id - transients.first_buffer()] == 0 && buffer.pool != kNoPool)
        --live[buffer.pool];
    }
  }
  return peak;
}

}  // namespace

Minimum serial_minimum(const Program& program, const Pools& pools, const Lanes& lanes,
                       Initialised& initialised) {
  return {walk(program, pools, lanes, initialised, [](const Op&, const Buffer&, std::uint32_t) {})};
}

Minimum check(const Program& program, const Pools& pools, const Lanes& lanes,
              Initialised& initialised) {
  std::vector<std::uint32_t> persistents(pools.size(), 0);
  for (const BufferId id : program.residents().roots()) {
    const PoolId pool = program.residents().info(id).pool;
    if (pool == kNoPool) continue;
    SLUICE_CHECK(pool < pools.size() && ++persistents[pool] <= pools[pool].slots, kBudget,
                 fmt::format("{}: the persistent buffers need more than the {} slots of pool {}",
                             program.name(), pools[pool].slots, pools[pool].name));
  }
  return {walk(program, pools, lanes, initialised,
               [&](const Op& op, const Buffer& buffer, std::uint32_t live) {
                 const Pool& pool = pools[buffer.pool];
                 SLUICE_CHECK(
                     live <= pool.slots, kBudget,
                     fmt::format("{}: {} asks pool '{}' ({} tier) for {} of {}, 0 B free of {} "
                                 "({} slots): give the tier more memory, or move {} out of it",
                                 program.name(), describe(op), pool.name, name_of(pool.tier),
                                 format_bytes(pool.slot), name_of(buffer.tag),
                                 format_bytes(pool.slot * pool.slots), pool.slots,
                                 name_of(buffer.tag)));
               })};
}

}  // namespace sluice::prefetch
