#include "prefetch/scoreboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace sluice::prefetch {

Scoreboard::Scoreboard(std::shared_ptr<const Residents> residents, Pools pools, Lanes lanes,
                       Derivations derive)
    : residents_(std::move(residents)),
      pools_(std::move(pools)),
      lanes_(std::move(lanes)),
      derive_(derive),
      leaves_(residents_->end_leaf()),
      resident_slots_(residents_->end_buffer(), 0),
      free_(pools_.size()),
      peak_(pools_.size(), 0),
      wanted_(pools_.size()),
      fifo_(lanes_.size()),
      ready_(lanes_.size()),
      active_(lanes_.size(), 0) {
  std::vector<std::uint32_t> taken(pools_.size(), 0);
  for (const BufferId id : residents_->roots()) {
    const PoolId pool = residents_->info(id).pool;
    if (pool == kNoPool) continue;
    SLUICE_CHECK(pool < pools_.size(), kLogic,
                 fmt::format("a persistent buffer names pool {} of {}", pool, pools_.size()));
    resident_slots_[id] = taken[pool]++;
  }
  for (PoolId pool = 0; pool < pools_.size(); ++pool) {
    for (std::uint32_t slot = pools_[pool].slots; slot > taken[pool]; --slot) {
      free_[pool].push_back(slot - 1);
    }
    peak_[pool] = taken[pool];
  }
}

Scoreboard::Instance& Scoreboard::at(std::uint32_t instance) {
  return const_cast<Instance&>(std::as_const(*this).at(instance));
}

const Scoreboard::Instance& Scoreboard::at(std::uint32_t instance) const {
  SLUICE_CHECK(instance >= first_instance_ && instance - first_instance_ < instances_.size(),
               kLogic, fmt::format("program instance {} is not in flight", instance));
  return instances_[instance - first_instance_];
}

bool Scoreboard::finished(std::uint32_t instance) const {
  return instance < first_instance_ || at(instance).left == 0;
}

std::size_t Scoreboard::in_flight() const {
  return static_cast<std::size_t>(std::count_if(instances_.begin(), instances_.end(),
                                                [](const Instance& i) { return i.left > 0; }));
}

std::uint32_t Scoreboard::append(std::shared_ptr<const Program> program) {
  SLUICE_CHECK(program->transients().sealed(), kLogic,
               fmt::format("program '{}' was appended before seal()", program->name()));
  SLUICE_CHECK(
      &program->residents() == residents_.get(), kLogic,
      fmt::format("program '{}' was written for another table of persistents", program->name()));
  while (!instances_.empty() && instances_.front().left == 0) {
    instances_.pop_front();
    ++first_instance_;
  }
  const auto instance = first_instance_ + static_cast<std::uint32_t>(instances_.size());
  const BufferTable& transients = program->transients();
  Instance& added = instances_.emplace_back();
  added.program = std::move(program);
  added.ops.resize(added.program->ops().size());
  added.roots.resize(transients.end_buffer() - transients.first_buffer());
  added.left = added.ops.size();

  std::vector<Leaf> transient_leaves(transients.end_leaf() - transients.first_leaf());
  for (std::uint32_t i = 0; i < added.ops.size(); ++i) {
    const OpRef ref{instance, i};
    ++added.ops[i].blocked;  // held until everything it waits for is known
    derive(ref, transient_leaves);
    const auto& access = added.program->accesses(i);
    for (const BufferId id : access.defines) {
      Root& root = added.roots[id - transients.first_buffer()];
      root.users = added.program->users(id);
      root.definer = i;
      const PoolId pool = transients.info(id).pool;
      if (pool == kNoPool) {
        root.granted = true;
      } else {
        wanted_[pool].push_back({instance, id});
      }
    }
    for (const BufferId id : access.roots) {
      Root& root = added.roots[id - transients.first_buffer()];
      if (root.granted || !(root.definer == i || derive_.every_root_granted)) continue;
      root.waiters.push_back(i);
      ++added.ops[i].blocked;
    }
    if (fifo(ref)) fifo_[op(ref).lane].push_back(ref);
  }
  for (PoolId pool = 0; pool < pools_.size(); ++pool) grant(pool);
  for (std::uint32_t i = 0; i < added.ops.size(); ++i) unblock({instance, i}, {});
  return instance;
}

void Scoreboard::depend(OpRef op, OpRef on) {
  if (op == on || on.instance < first_instance_) return;
  LiveOp& source = live(on);
  if (source.state == State::kCompleted) return;
  LiveOp& follower = live(op);
  if (!source.followers.empty() && source.followers.back() == op) return;
  ++edges_;
  const bool streams = fifo(op) && fifo(on);
  if (streams && this->op(op).lane != this->op(on).lane) follower.fifo_sources.push_back(on);
  if (streams && source.state == State::kIssued) {
    if (this->op(op).lane != this->op(on).lane) source.waiting.push_back(op);
    return;
  }
  source.followers.push_back(op);
  ++follower.blocked;
}

/// Drops the readers of programs that are gone: what is read for ever and never written (a constant
/// table) would otherwise grow with the run. Readers stand in stream order.
void Scoreboard::forget_finished(std::vector<OpRef>& readers) const {
  if (readers.empty() || readers.front().instance >= first_instance_) return;
  const auto kept = std::lower_bound(readers.begin(), readers.end(), OpRef{first_instance_, 0});
  readers.erase(readers.begin(), kept);
}

void Scoreboard::add_reader(Leaf& leaf, OpRef reader) const {
  std::vector<OpRef>& readers = fifo(reader) ? leaf.streams : leaf.hosts;
  forget_finished(readers);
  if (fifo(reader)) {
    const LaneId lane = op(reader).lane;
    std::erase_if(readers, [&](OpRef earlier) { return op(earlier).lane == lane; });
  }
  readers.push_back(reader);
}

/// Whether an op of this one's stream has read the leaf since it was written: what stands behind
/// that stands behind the write.
bool Scoreboard::behind_a_reader(OpRef ref, const Leaf& leaf) const {
  if (!fifo(ref)) return false;
  return std::any_of(leaf.streams.begin(), leaf.streams.end(), [&](OpRef reader) {
    return reader.instance < first_instance_ || op(reader).lane == op(ref).lane;
  });
}

void Scoreboard::derive(OpRef ref, std::vector<Leaf>& transient_leaves) {
  const auto& access = program(ref.instance).accesses(ref.index);
  const LeafId first = program(ref.instance).transients().first_leaf();
  const auto leaf = [&](LeafId id) -> Leaf& {
    return id < first ? leaves_[id] : transient_leaves[id - first];
  };
  for (const LeafId id : access.reads) {
    Leaf& l = leaf(id);
    if (derive_.read_after_write && l.writer && !behind_a_reader(ref, l)) depend(ref, *l.writer);
  }
  for (const LeafId id : access.writes) {
    Leaf& l = leaf(id);
    if (derive_.write_after_write && l.writer) depend(ref, *l.writer);
    if (derive_.write_after_read) {
      for (const OpRef reader : l.hosts) depend(ref, reader);
      for (const OpRef reader : l.streams) depend(ref, reader);
    }
    l.writer = ref;
    l.hosts.clear();
    l.streams.clear();
  }
  for (const LeafId id : access.reads) {
    Leaf& l = leaf(id);
    if (l.writer != ref) add_reader(l, ref);
  }
}

void Scoreboard::grant(PoolId pool) {
  auto& wanted = wanted_[pool];
  auto& free = free_[pool];
  while (!wanted.empty() && !free.empty()) {
    const auto [instance, id] = wanted.front();
    wanted.pop_front();
    Instance& owner = at(instance);
    Root& root = owner.roots[id - owner.program->transients().first_buffer()];
    root.slot = free.back();
    free.pop_back();
    root.granted = true;
    for (const std::uint32_t waiter : root.waiters) {
      unblock({instance, waiter}, {Cause::Kind::kMemory, pool});
    }
    root.waiters = {};
  }
  const auto used = pools_[pool].slots - static_cast<std::uint32_t>(free.size());
  peak_[pool] = std::max(peak_[pool], used);
}

void Scoreboard::unblock(OpRef ref, Cause cause) {
  LiveOp& waiting = live(ref);
  if (--waiting.blocked > 0) return;
  waiting.cause = cause;
  waiting.since = now_;
  if (!fifo(ref)) ready_[op(ref).lane].push(ref);
}

/// An op of another stream, which this one was enqueued behind, is completed.
void Scoreboard::reached(OpRef ref, LaneId by) {
  if (ref.instance < first_instance_) return;
  LiveOp& waiting = live(ref);
  if (waiting.blocked > 0 || waiting.state == State::kCompleted) return;
  waiting.cause = {Cause::Kind::kLane, by};
  waiting.since = now_;
}

bool Scoreboard::has_next(LaneId lane) const {
  if (stopped_ || active_[lane] >= lanes_[lane].width) return false;
  if (lanes_[lane].issue == Issue::kOldestReady) return !ready_[lane].empty();
  if (fifo_[lane].empty()) return false;
  const OpRef head = fifo_[lane].front();
  return at(head.instance).ops[head.index].blocked == 0;
}

std::optional<OpRef> Scoreboard::next(LaneId lane) {
  if (!has_next(lane)) return std::nullopt;
  OpRef ref;
  if (lanes_[lane].issue == Issue::kFifo) {
    ref = fifo_[lane].front();
    fifo_[lane].pop_front();
  } else {
    ref = ready_[lane].top();
    ready_[lane].pop();
  }
  live(ref).state = State::kStarted;
  ++active_[lane];
  ++running_;
  return ref;
}

void Scoreboard::issued(OpRef ref) {
  LiveOp& source = live(ref);
  SLUICE_CHECK(
      source.state == State::kStarted && fifo(ref), kLogic,
      fmt::format("{} was issued, and is not a started op of a stream", describe(op(ref))));
  source.state = State::kIssued;
  const LaneId lane = op(ref).lane;
  --active_[lane];
  std::vector<OpRef> hosts;
  for (const OpRef follower : source.followers) {
    if (fifo(follower)) {
      unblock(follower, {Cause::Kind::kLane, lane});
      if (op(follower).lane != lane) source.waiting.push_back(follower);
    } else {
      hosts.push_back(follower);
    }
  }
  source.followers = std::move(hosts);
}

std::vector<Freed> Scoreboard::completed(OpRef ref) {
  LiveOp& source = live(ref);
  const State expected = fifo(ref) ? State::kIssued : State::kStarted;
  SLUICE_CHECK(source.state == expected, kLogic,
               fmt::format("{} was completed twice, or before it was issued", describe(op(ref))));
  source.state = State::kCompleted;
  --running_;
  const LaneId lane = op(ref).lane;
  if (!fifo(ref)) --active_[lane];
  for (const OpRef follower : std::exchange(source.followers, {})) {
    unblock(follower, {Cause::Kind::kLane, lane});
  }
  for (const OpRef enqueued : std::exchange(source.waiting, {})) reached(enqueued, lane);

  std::vector<Freed> freed;
  Instance& owner = at(ref.instance);
  const BufferTable& transients = owner.program->transients();
  for (const BufferId id : owner.program->accesses(ref.index).roots) {
    Root& root = owner.roots[id - transients.first_buffer()];
    const Buffer& buffer = transients.info(id);
    if (--root.users > 0 || buffer.pool == kNoPool) continue;
    free_[buffer.pool].push_back(root.slot);
    freed.push_back({buffer.pool, root.slot, buffer.bytes});
  }
  --owner.left;
  for (const Freed& f : freed) grant(f.pool);
  return freed;
}

bool Scoreboard::idle() const {
  return running_ == 0 && (stopped_ || in_flight() == 0);
}

bool Scoreboard::stuck() const {
  if (running_ > 0 || idle()) return false;
  for (LaneId lane = 0; lane < lanes_.size(); ++lane) {
    if (has_next(lane)) return false;
  }
  return true;
}

std::uint32_t Scoreboard::slot(OpRef ref, BufferId id) const {
  const Program& p = program(ref.instance);
  const BufferId root = p.root(id);
  SLUICE_CHECK(p.info(root).pool != kNoPool, kLogic,
               fmt::format("{}: buffer {} has no bytes, so it has no slot", p.name(), id));
  if (p.persistent(root)) return resident_slots_[root];
  return at(ref.instance).roots[root - p.transients().first_buffer()].slot;
}

std::vector<OpRef> Scoreboard::stream_waits(OpRef ref) const {
  std::vector<OpRef> waits;
  for (const OpRef source : at(ref.instance).ops[ref.index].fifo_sources) {
    if (source.instance < first_instance_) continue;
    if (at(source.instance).ops[source.index].state == State::kIssued) waits.push_back(source);
  }
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  return waits;
}

}  // namespace sluice::prefetch
