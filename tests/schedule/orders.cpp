#include "tests/schedule/orders.h"

#include <algorithm>
#include <optional>

namespace sluice::testing {
namespace {

using prefetch::BufferId;
using prefetch::LeafId;
using prefetch::OpRef;
using prefetch::Program;

/// The place of a leaf that asks for the order of two ops of a stream.
constexpr std::size_t kLane = ~std::size_t{0};

/// What the op declares no more: leaves that it does not read, or write, in another way as well.
std::vector<LeafId> lost_leaves(const Program& program, const Omission& left_out) {
  prefetch::Op op = program.ops()[left_out.op];
  leave_out(op, left_out);
  std::vector<prefetch::LeafRange> kept;
  const auto keep = [&](BufferId id) { kept.push_back(program.table(id).leaves(id)); };
  if (left_out.access == Declared::kWrite) {
    std::ranges::for_each(op.writes, keep);
  } else {
    std::ranges::for_each(op.reads, keep);
    if (op.predicate) keep(op.predicate->record);
  }
  const prefetch::LeafSet still(std::move(kept));
  const BufferId id = buffer_of(program, left_out);
  const auto [begin, end] = program.table(id).leaves(id);
  std::vector<LeafId> lost;
  for (auto leaf = begin; leaf < end; ++leaf) {
    if (!still.contains(leaf)) lost.push_back(leaf);
  }
  return lost;
}

}  // namespace

/// A reader follows the last writer; a writer follows that and who has read since.
template <class Found>
void Orders::for_each_order(const Touches& touches, Found found) {
  std::optional<std::size_t> writer;
  std::vector<std::size_t> readers;
  for (const Touch& touch : touches) {
    if (writer) found(*writer, touch.op);
    if (touch.writes) {
      for (const std::size_t reader : readers) found(reader, touch.op);
      readers.clear();
      writer = touch.op;
    } else {
      readers.push_back(touch.op);
    }
  }
}

Orders::Orders(const RandomStream& stream) : stream_(stream) {
  const LeafId residents = stream.residents->end_leaf();
  touches_.resize(residents);
  std::map<prefetch::LaneId, std::size_t> last_of_stream;
  for (std::uint32_t instance = 0; instance < stream.programs.size(); ++instance) {
    const Program& program = *stream.programs[instance];
    first_op_.push_back(before_.size());
    first_leaf_.push_back(touches_.size());
    touches_.resize(touches_.size() + program.transients().end_leaf() - residents);
    for (std::size_t i = 0; i < program.ops().size(); ++i) {
      const std::size_t op = before_.size();
      before_.emplace_back();
      const auto& access = program.accesses(i);
      for (const auto leaf : access.reads) touch(place(instance, leaf), op).reads = true;
      for (const auto leaf : access.writes) touch(place(instance, leaf), op).writes = true;
      const prefetch::LaneId lane = program.ops()[i].lane;
      if (stream.lanes[lane].issue != prefetch::Issue::kFifo) continue;
      const auto [last, first] = last_of_stream.try_emplace(lane, op);
      if (!first) before_[op].push_back({std::exchange(last->second, op), kLane});
    }
  }
  for (std::size_t leaf = 0; leaf < touches_.size(); ++leaf) {
    for_each_order(touches_[leaf], [&](std::size_t a, std::size_t b) {
      before_[b].push_back({a, leaf});
    });
  }
  changed_.resize(touches_.size(), false);
  seen_.resize(before_.size(), 0);
}

std::size_t Orders::place(std::uint32_t instance, LeafId leaf) const {
  const LeafId residents = stream_.residents->end_leaf();
  return leaf < residents ? leaf : first_leaf_[instance] + leaf - residents;
}

OpRef Orders::ref(std::size_t op) const {
  const auto after = std::upper_bound(first_op_.begin(), first_op_.end(), op);
  const auto instance = static_cast<std::uint32_t>(after - first_op_.begin() - 1);
  return {instance, static_cast<std::uint32_t>(op - first_op_[instance])};
}

std::vector<std::uint32_t> Orders::instances(const Program& program) const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < stream_.programs.size(); ++i) {
    if (stream_.programs[i].get() == &program) found.push_back(i);
  }
  return found;
}

std::vector<OpRef> Orders::instances_of(const Program& program, std::size_t op) const {
  std::vector<OpRef> found;
  for (const std::uint32_t instance : instances(program)) {
    found.push_back({instance, static_cast<std::uint32_t>(op)});
  }
  return found;
}

Orders::Touch& Orders::touch(std::size_t leaf, std::size_t op) {
  Touches& touches = touches_[leaf];
  if (touches.empty() || touches.back().op != op) touches.push_back({op});
  return touches.back();
}

std::vector<OpRef> Orders::predecessors(const Program& program, const Omission& left_out) const {
  std::vector<OpRef> found;
  for (const std::uint32_t instance : instances(program)) {
    const std::size_t self = first_op_[instance] + left_out.op;
    for (const auto leaf : lost_leaves(program, left_out)) {
      for_each_order(touches_[place(instance, leaf)], [&](std::size_t a, std::size_t b) {
        if (b == self) found.push_back(ref(a));
      });
    }
  }
  return found;
}

Effect Orders::without(const Program& program, const Omission& left_out) {
  std::map<std::size_t, Touches> remaining;
  for (const std::uint32_t instance : instances(program)) {
    for (const auto leaf : lost_leaves(program, left_out)) {
      const std::size_t at = place(instance, leaf);
      Touches& touches = remaining.try_emplace(at, touches_[at]).first->second;
      const auto self = std::ranges::find(touches, first_op_[instance] + left_out.op, &Touch::op);
      (left_out.access == Declared::kWrite ? self->writes : self->reads) = false;
      if (!self->reads && !self->writes) touches.erase(self);
    }
  }
  orders_.clear();
  for (const auto& [leaf, touches] : remaining) {
    changed_[leaf] = true;
    for_each_order(touches, [&](std::size_t a, std::size_t b) { orders_.emplace_back(a, b); });
  }
  const Effect effect = judge(program, left_out, remaining);
  for (const auto& [leaf, touches] : remaining) changed_[leaf] = false;
  return effect;
}

Effect Orders::judge(const Program& program, const Omission& left_out,
                     const std::map<std::size_t, Touches>& remaining) {
  for (const auto& [leaf, touches] : remaining) {
    if (!touches.empty() && touches.front().reads) return {Effect::Kind::kRefused};
  }
  for (const std::uint32_t instance : instances(program)) {
    const std::size_t self = first_op_[instance] + left_out.op;
    for (const auto& [leaf, touches] : remaining) {
      std::optional<std::size_t> late;
      for_each_order(touches_[leaf], [&](std::size_t a, std::size_t b) {
        if ((a == self || b == self) && !late && !ordered(a, b)) late = a;
      });
      if (late) return {Effect::Kind::kLost, ref(*late)};
    }
  }
  return judge_slot(program, left_out);
}

/// The slot of a transient is the op's from before it starts until it is done, when it names the
/// buffer, or is ordered between two that do.
Effect Orders::judge_slot(const Program& program, const Omission& left_out) {
  const BufferId root = program.root(buffer_of(program, left_out));
  prefetch::Op op = program.ops()[left_out.op];
  leave_out(op, left_out);
  const auto names = [&](BufferId id) { return program.root(id) == root; };
  if (program.persistent(root) || std::ranges::any_of(op.reads, names) ||
      std::ranges::any_of(op.writes, names) || (op.predicate && names(op.predicate->record))) {
    return {};
  }
  // Which instance does not matter: no other program names the buffer.
  const std::size_t first = first_op_[instances(program).front()];
  const std::size_t self = first + left_out.op;
  bool granted = false, kept = false;
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const auto& roots = program.accesses(i).roots;
    if (std::ranges::find(roots, root) == roots.end()) continue;
    granted = granted || (i < left_out.op && ordered(first + i, self));
    kept = kept || (i > left_out.op && ordered(self, first + i));
  }
  if (!granted) return {Effect::Kind::kUngranted};
  return kept ? Effect{} : Effect{Effect::Kind::kLost, ref(self)};
}

/// By the streams, by the leaves that nothing was left out of, and by what remains of the others.
bool Orders::ordered(std::size_t a, std::size_t b) {
  ++visit_;
  std::vector<std::size_t> open{b};
  const auto reach = [&](std::size_t op) {
    if (op >= a && std::exchange(seen_[op], visit_) != visit_) open.push_back(op);
  };
  while (!open.empty()) {
    const std::size_t op = open.back();
    open.pop_back();
    if (op == a) return true;
    for (const Before& before : before_[op]) {
      if (before.leaf == kLane || !changed_[before.leaf]) reach(before.op);
    }
    for (const auto& [from, to] : orders_) {
      if (to == op) reach(from);
    }
  }
  return false;
}

}  // namespace sluice::testing
