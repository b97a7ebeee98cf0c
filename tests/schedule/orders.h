/// Which ops of a stream are ordered, straight from the definition, and which of these orders are
/// gone when one declared access is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "prefetch/scoreboard.h"
#include "tests/schedule/omission.h"
#include "tests/support/random_program.h"

namespace sluice::testing {

/// What becomes of a stream when an access is left out.
struct Effect {
  enum class Kind : std::uint8_t {
    kRefused,    ///< something is read that nothing has written
    kLost,       ///< an order is gone: the op `late` may run too late for another, or for its slot
    kUngranted,  ///< the op may run before the slot that it uses is granted
    kImplied     ///< no order is gone: the other accesses ask for each of them
  };
  Kind kind = Kind::kImplied;
  prefetch::OpRef late = {};
};

/// Ops are numbered through the stream. Two of them are ordered when they share a leaf that one of
/// them writes, or a lane that is a stream.
class Orders {
 public:
  explicit Orders(const RandomStream& stream) : stream_(stream) {
    const prefetch::LeafId residents = stream.residents->end_leaf();
    touches_.resize(residents);
    std::map<prefetch::LaneId, std::size_t> last_of_lane;
    for (std::uint32_t instance = 0; instance < stream.programs.size(); ++instance) {
      const prefetch::Program& program = *stream.programs[instance];
      first_op_.push_back(before_.size());
      first_leaf_.push_back(touches_.size());
      touches_.resize(touches_.size() + program.transients().end_leaf() - residents);
      for (std::size_t i = 0; i < program.ops().size(); ++i) {
        const std::size_t op = before_.size();
        before_.emplace_back();
        for (const auto leaf : program.accesses(i).reads)
          touch(place(instance, leaf), op).reads = true;
        for (const auto leaf : program.accesses(i).writes)
          touch(place(instance, leaf), op).writes = true;
        const prefetch::LaneId lane = program.ops()[i].lane;
        if (stream.lanes[lane].issue != prefetch::Issue::kFifo) continue;
        const auto [last, first] = last_of_lane.try_emplace(lane, op);
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

  /// When every instance of `program` leaves it out.
  Effect without(const prefetch::Program& program, const Omission& left_out) {
    orders_.clear();
    std::map<std::size_t, Touches> remaining;
    for (const std::uint32_t instance : instances(program)) {
      for (const auto leaf : lost_leaves(program, left_out)) {
        const std::size_t at = place(instance, leaf);
        Touches& touches = remaining.try_emplace(at, touches_[at]).first->second;
        drop(touches, first_op_[instance] + left_out.op, left_out.access);
      }
    }
    for (const auto& [leaf, touches] : remaining) {
      changed_[leaf] = true;
      for_each_order(touches, [&](std::size_t a, std::size_t b) { orders_.emplace_back(a, b); });
    }
    const Effect effect = judge(program, left_out, remaining);
    for (const auto& [leaf, touches] : remaining) changed_[leaf] = false;
    return effect;
  }

  /// An op of a program, wherever that stands in the stream.
  std::vector<prefetch::OpRef> instances_of(const prefetch::Program& program,
                                            std::size_t op) const {
    std::vector<prefetch::OpRef> found;
    for (const std::uint32_t instance : instances(program)) {
      found.push_back({instance, static_cast<std::uint32_t>(op)});
    }
    return found;
  }

  /// The ops that it has to follow, in each instance, because of what is left out.
  std::vector<prefetch::OpRef> predecessors(const prefetch::Program& program,
                                            const Omission& left_out) const {
    std::vector<prefetch::OpRef> found;
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

 private:
  struct Touch {
    std::size_t op;
    bool reads = false, writes = false;
  };
  using Touches = std::vector<Touch>;  // of one leaf, in stream order
  struct Before {
    std::size_t op;
    std::size_t leaf;  // that asks for the order
  };
  static constexpr std::size_t kLane = ~std::size_t{0};

  std::size_t place(std::uint32_t instance, prefetch::LeafId leaf) const {
    const prefetch::LeafId residents = stream_.residents->end_leaf();
    return leaf < residents ? leaf : first_leaf_[instance] + leaf - residents;
  }
  prefetch::OpRef ref(std::size_t op) const {
    const auto after = std::upper_bound(first_op_.begin(), first_op_.end(), op);
    const auto instance = static_cast<std::uint32_t>(after - first_op_.begin() - 1);
    return {instance, static_cast<std::uint32_t>(op - first_op_[instance])};
  }
  std::vector<std::uint32_t> instances(const prefetch::Program& program) const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < stream_.programs.size(); ++i) {
      if (stream_.programs[i].get() == &program) found.push_back(i);
    }
    return found;
  }
  Touch& touch(std::size_t leaf, std::size_t op) {
    Touches& touches = touches_[leaf];
    if (touches.empty() || touches.back().op != op) touches.push_back({op});
    return touches.back();
  }
  static void drop(Touches& touches, std::size_t op, Declared access) {
    const auto at = std::ranges::find(touches, op, &Touch::op);
    (access == Declared::kWrite ? at->writes : at->reads) = false;
    if (!at->reads && !at->writes) touches.erase(at);
  }

  /// A reader follows the last writer; a writer follows that and who has read since.
  template <class Found>
  static void for_each_order(const Touches& touches, Found found) {
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

  /// Those that the op does not read, or write, in another way as well.
  static std::vector<prefetch::LeafId> lost_leaves(const prefetch::Program& program,
                                                   const Omission& left_out) {
    prefetch::Op op = program.ops()[left_out.op];
    leave_out(op, left_out);
    std::vector<prefetch::LeafRange> kept;
    const auto keep = [&](prefetch::BufferId id) { kept.push_back(program.table(id).leaves(id)); };
    if (left_out.access == Declared::kWrite) {
      std::ranges::for_each(op.writes, keep);
    } else {
      std::ranges::for_each(op.reads, keep);
      if (op.predicate) keep(op.predicate->record);
    }
    const prefetch::LeafSet still(std::move(kept));
    const prefetch::BufferId id = buffer_of(program, left_out);
    const auto [begin, end] = program.table(id).leaves(id);
    std::vector<prefetch::LeafId> lost;
    for (auto leaf = begin; leaf < end; ++leaf) {
      if (!still.contains(leaf)) lost.push_back(leaf);
    }
    return lost;
  }

  Effect judge(const prefetch::Program& program, const Omission& left_out,
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
  Effect judge_slot(const prefetch::Program& program, const Omission& left_out) {
    const prefetch::BufferId root = program.root(buffer_of(program, left_out));
    prefetch::Op op = program.ops()[left_out.op];
    leave_out(op, left_out);
    const auto names = [&](prefetch::BufferId id) { return program.root(id) == root; };
    if (program.persistent(root) || std::ranges::any_of(op.reads, names) ||
        std::ranges::any_of(op.writes, names) || (op.predicate && names(op.predicate->record))) {
      return {};
    }
    const std::uint32_t instance = instances(program).front();
    const std::size_t self = first_op_[instance] + left_out.op;
    bool granted = false, kept = false;
    for (std::size_t i = 0; i < program.ops().size(); ++i) {
      const auto& roots = program.accesses(i).roots;
      if (std::ranges::find(roots, root) == roots.end()) continue;
      const std::size_t user = first_op_[instance] + i;
      granted = granted || (user < self && ordered(user, self));
      kept = kept || (user > self && ordered(self, user));
    }
    if (!granted) return {Effect::Kind::kUngranted};
    return kept ? Effect{} : Effect{Effect::Kind::kLost, ref(self)};
  }

  /// By the lanes, by the leaves that nothing was left out of, and by what remains of the others.
  bool ordered(std::size_t a, std::size_t b) {
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

  const RandomStream& stream_;
  std::vector<std::size_t> first_op_, first_leaf_;  // by instance
  std::vector<Touches> touches_;                    // by leaf of the stream
  std::vector<std::vector<Before>> before_;         // by op
  // Of the omission that is being judged.
  std::vector<bool> changed_;                                // by leaf: an access is left out
  std::vector<std::pair<std::size_t, std::size_t>> orders_;  // of those leaves, as they remain
  std::vector<std::size_t> seen_;                            // by op: the last visit
  std::size_t visit_ = 0;
};

}  // namespace sluice::testing
