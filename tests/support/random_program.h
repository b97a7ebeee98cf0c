/// Random machines and streams of programs, for the property tests of whatever runs them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "prefetch/cost_model.h"
#include "prefetch/program.h"

namespace sluice::testing {

/// What a generator draws its choices from. A tape that has run out says 0 for ever, and 0 is
/// always the simplest choice: a shorter tape is a smaller stream, so RapidCheck can shrink one.
class Tape {
 public:
  explicit Tape(std::vector<std::uint16_t> choices) : choices_(std::move(choices)) {}
  static Tape random(std::uint64_t seed, std::size_t length) {
    std::mt19937_64 engine(seed);
    std::vector<std::uint16_t> choices(length);
    for (auto& choice : choices) choice = static_cast<std::uint16_t>(engine());
    return Tape(std::move(choices));
  }

  std::uint32_t below(std::uint32_t n) { return left() > 0 ? choices_[used_++] % n : 0; }
  std::size_t left() const { return choices_.size() - used_; }

  friend std::ostream& operator<<(std::ostream& out, const Tape& tape) {
    for (const auto choice : tape.choices_) out << choice << ' ';
    return out;
  }

 private:
  std::vector<std::uint16_t> choices_;
  std::size_t used_ = 0;
};

/// Parts begin on a multiple of this.
inline constexpr Bytes kCell = 512;

struct RandomStream {
  std::shared_ptr<const prefetch::Residents> residents;
  prefetch::Pools pools;  ///< exactly the serial minimum of the stream
  prefetch::Lanes lanes;
  prefetch::CostModel cost;
  std::vector<std::shared_ptr<const prefetch::Program>> programs;  ///< some of them twice
};

class StreamGenerator {
 public:
  explicit StreamGenerator(Tape tape) : tape_(std::move(tape)) {}

  RandomStream make() {
    machine();
    auto residents = std::make_shared<prefetch::Residents>();
    for (std::uint32_t n = tape_.below(5); n > 0; --n) persistents_.push_back(root(*residents));
    residents->seal();
    stream_.residents = residents;
    const std::uint32_t distinct = 1 + tape_.below(4);
    const std::size_t share = tape_.left() / distinct;
    for (std::uint32_t i = 0; i < distinct; ++i) {
      stream_.programs.push_back(program(i, tape_.left() - std::min(tape_.left(), share)));
    }
    for (std::uint32_t n = distinct == 1 ? 1 : tape_.below(2); n > 0; --n) {
      stream_.programs.push_back(stream_.programs[tape_.below(distinct)]);
    }
    fit();
    return std::move(stream_);
  }

 private:
  /// A root with what is written of it: its parts, then what no part covers.
  struct Made {
    prefetch::BufferId id;
    std::vector<prefetch::BufferId> parts;
    std::vector<bool> written;
  };

  struct Choice {
    Made* made;
    std::size_t part;  // as many as there are parts: the root

    bool whole() const { return part == made->parts.size(); }
    prefetch::BufferId id() const { return whole() ? made->id : made->parts[part]; }
    bool written() const {
      if (!whole()) return made->written[part];
      return std::find(made->written.begin(), made->written.end(), false) == made->written.end();
    }
    void write() const {
      if (whole()) {
        made->written.assign(made->written.size(), true);
      } else {
        made->written[part] = true;
      }
    }
  };

  void machine() {
    for (std::uint32_t i = 0, n = 1 + tape_.below(5); i < n; ++i) {
      const auto issue =
          tape_.below(2) == 0 ? prefetch::Issue::kOldestReady : prefetch::Issue::kFifo;
      stream_.lanes.push_back({"lane" + std::to_string(i), 1 + tape_.below(3), issue});
      prefetch::LaneCost cost;
      cost.bytes_per_second = 1;
      cost.demands.push_back({0, 0.5 * tape_.below(3)});
      stream_.cost.lanes.push_back(cost);
    }
    stream_.cost.resources.push_back({"shared"});
    for (std::uint32_t i = 0, n = 1 + tape_.below(3); i < n; ++i) {
      stream_.pools.push_back(
          {"pool" + std::to_string(i), prefetch::Tier::kCpu, kAlignment * (1 + tape_.below(2)), 0});
    }
  }

  template <class Table>
  Made root(Table& table) {
    const std::uint32_t pool = tape_.below(static_cast<std::uint32_t>(stream_.pools.size()) + 1);
    if (pool == stream_.pools.size()) return {table.buffer({}), {}, {false}};
    const auto slot_cells = static_cast<std::uint32_t>(stream_.pools[pool].slot / kCell);
    const Bytes bytes = kCell * (1 + tape_.below(slot_cells));
    const auto tag = static_cast<prefetch::MemoryTag>(tape_.below(6));
    Made made{table.buffer({pool, bytes, tag}), {}, {}};
    Bytes end = 0;
    Bytes named = 0;
    for (std::uint32_t n = tape_.below(4); n > 0; --n) {
      const Bytes offset = end + kCell * tape_.below(2);
      const Bytes size = kCell * (1 + tape_.below(2));
      if (offset + size > bytes) break;
      made.parts.push_back(table.part_of(made.id, offset, size));
      end = offset + size;
      named += size;
    }
    made.written.assign(made.parts.size() + (named < bytes ? 1 : 0), false);
    return made;
  }

  std::shared_ptr<const prefetch::Program> program(std::uint32_t number, std::size_t leave) {
    auto program =
        std::make_shared<prefetch::Program>("program" + std::to_string(number), stream_.residents);
    transients_.clear();
    for (std::int32_t i = 0; tape_.left() > leave; ++i) program->op(op(*program, i));
    program->seal();
    return program;
  }

  prefetch::Op op(prefetch::Program& program, std::int32_t number) {
    prefetch::Op op;
    op.kind = {1, "work"};
    op.where.segment = number;
    op.lane = tape_.below(static_cast<std::uint32_t>(stream_.lanes.size()));
    op.cost.bytes = 1 + tape_.below(40);
    std::vector<Choice> writes;
    transients_.reserve(transients_.size() + 5);  // pointers stay good within one op
    bool rewrites = true;                         // what is written already, and nothing else
    for (std::uint32_t n = 1 + tape_.below(4); n > 0; --n) {
      const Choice choice = choose(program);
      const bool readable = choice.written();
      const std::uint32_t how = tape_.below(3);  // write, read, update
      if (how > 0 && readable) op.reads.push_back(choice.id());
      if (how != 1 || !readable) {
        op.writes.push_back(choice.id());
        writes.push_back(choice);
        rewrites = rewrites && readable;
      }
    }
    // An op that does nothing leaves what was there before: there must be something.
    if (rewrites && tape_.below(4) > 0) op.predicate = predicate(program);
    for (const Choice& choice : writes) choice.write();
    return op;
  }

  std::optional<prefetch::Predicate> predicate(prefetch::Program& program) {
    const Choice record = choose(program);
    if (!record.written() || program.info(record.id()).pool == prefetch::kNoPool) return {};
    return prefetch::Predicate{record.id(), static_cast<std::uint16_t>(tape_.below(4))};
  }

  Choice choose(prefetch::Program& program) {
    Made& made = pick(program);
    const auto parts = static_cast<std::uint32_t>(made.parts.size());
    return {&made, parts - tape_.below(parts + 1)};
  }

  /// Mostly something of a little while ago, as in a real step.
  Made& pick(prefetch::Program& program) {
    const std::uint32_t kind = tape_.below(8);
    if (kind >= 6 && !persistents_.empty()) {
      return persistents_[tape_.below(static_cast<std::uint32_t>(persistents_.size()))];
    }
    if (kind < 2 || transients_.empty()) {
      transients_.push_back(root(program));
      return transients_.back();
    }
    const auto window = static_cast<std::uint32_t>(std::min<std::size_t>(transients_.size(), 6));
    return transients_[transients_.size() - 1 - tape_.below(window)];
  }

  void fit() {
    prefetch::Initialised initialised(*stream_.residents);
    std::vector<std::uint32_t> need(stream_.pools.size(), 0);
    for (const auto& program : stream_.programs) {
      const auto minimum =
          prefetch::serial_minimum(*program, stream_.pools, stream_.lanes, initialised);
      for (std::size_t i = 0; i < need.size(); ++i) need[i] = std::max(need[i], minimum.slots[i]);
    }
    for (std::size_t i = 0; i < need.size(); ++i) stream_.pools[i].slots = need[i];
  }

  Tape tape_;
  RandomStream stream_;
  std::vector<Made> persistents_;
  std::vector<Made> transients_;
};

inline RandomStream random_stream(Tape tape) {
  return StreamGenerator(std::move(tape)).make();
}

}  // namespace sluice::testing
