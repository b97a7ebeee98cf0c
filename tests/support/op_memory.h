/// Work for the ops of a random stream, in a memory made of slots: the numbers of leaf_values.h.
/// What an op computed says whether it ran at the right time and in the right place.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "prefetch/scoreboard.h"
#include "tests/support/leaf_values.h"

namespace sluice::testing {

/// The memory, and the run of each op in two halves, as far apart as the driver lets them be.
///
/// Thread  ops from any thread; nothing here orders them, so that ThreadSanitizer sees a race
///         between two ops that the driver should have ordered
class OpMemory {
 public:
  OpMemory(const RandomStream& stream, const prefetch::Pools& pools)
      : stream_(stream), persistent_places_(leaf_places(*stream.residents)) {
    slot_cells_.resize(pools.size(), 0);
    make_cells(*stream.residents);
    for (const auto& program : stream.programs) make_cells(program->transients());
    for (std::size_t i = 0; i < pools.size(); ++i) {
      cells_.emplace_back(pools[i].slots * slot_cells_[i], kPoison);
      owners_.emplace_back(pools[i].slots);
    }
    std::vector<std::uint32_t> taken(pools.size(), 0);
    persistent_slots_.resize(stream.residents->end_buffer(), 0);
    for (const auto root : stream.residents->roots()) {
      const auto pool = stream.residents->info(root).pool;
      if (pool == prefetch::kNoPool) continue;
      owners_[pool][taken[pool]].store(owner(0, root), std::memory_order_relaxed);
      persistent_slots_[root] = taken[pool]++;
    }
    persistent_controls_.assign(stream.residents->end_buffer(), kPoison);
    for (const auto& program : stream.programs) {
      places_.push_back(leaf_places(program->transients()));
      const auto& table = program->transients();
      controls_.emplace_back(table.end_buffer() - table.first_buffer(), kPoison);
      runs_.emplace_back(program->ops().size());
    }
  }

  /// The slots of what the op names are its buffers' own, from here until freed().
  template <class SlotOf>
  void claim(prefetch::OpRef ref, SlotOf slot_of) {
    for (const auto root : stream_.programs[ref.instance]->accesses(ref.index).roots) {
      const auto pool = stream_.programs[ref.instance]->info(root).pool;
      if (pool != prefetch::kNoPool) claim_slot(pool, slot_of(root), owner(ref.instance, root));
    }
  }

  /// The first half: reads, and spoils what will be written. `slot_of(root)` is the driver's word.
  template <class SlotOf>
  void begin(prefetch::OpRef ref, SlotOf slot_of) {
    claim(ref, slot_of);
    const auto& access = stream_.programs[ref.instance]->accesses(ref.index);
    Run& run = runs_[ref.instance][ref.index];
    if (std::exchange(run.state, State::kBegun) != State::kWaiting) complain("an op ran twice");
    run.works = works(ref, slot_of);
    const Readings readings = read(ref, run, slot_of);
    if (readings.poison) complain("an op read poison");
    run.value = readings.all;
    run.kept = readings.kept;
    if (run.works) {
      for (const auto leaf : access.writes) cell(ref, leaf, slot_of) = kPoison;
    }
    begun_.fetch_add(1, std::memory_order_relaxed);
  }

  /// The second half: what was read must still be there; writes.
  template <class SlotOf>
  void end(prefetch::OpRef ref, SlotOf slot_of) {
    Run& run = runs_[ref.instance][ref.index];
    if (std::exchange(run.state, State::kEnded) != State::kBegun) complain("an op ended twice");
    if (read(ref, run, slot_of).kept != run.kept) complain("what an op reads changed under it");
    if (run.works) {
      for (const auto leaf : stream_.programs[ref.instance]->accesses(ref.index).writes) {
        std::uint64_t& target = cell(ref, leaf, slot_of);
        if (target != kPoison) complain("two ops wrote one leaf at once");
        target = mix(run.value, leaf);
      }
    }
    ended_.fetch_add(1, std::memory_order_relaxed);
  }

  void freed(const prefetch::Freed& slot) {
    if (owners_[slot.pool][slot.slot].exchange(0, std::memory_order_relaxed) == 0) {
      complain("a slot was freed that nobody had used");
    }
    const std::size_t begin = slot.slot * slot_cells_[slot.pool];
    for (std::size_t i = 0; i < slot_cells_[slot.pool]; ++i) cells_[slot.pool][begin + i] = kPoison;
  }

  /// The first thing that went wrong; empty when all went well.
  std::string complaint() const {
    const char* text = complaint_.load(std::memory_order_acquire);
    return text == nullptr ? "" : text;
  }
  std::size_t begun() const { return begun_.load(std::memory_order_relaxed); }
  std::size_t ended() const { return ended_.load(std::memory_order_relaxed); }

  Results results() const {
    Results results;
    for (const auto& program : runs_) {
      auto& values = results.ops.emplace_back();
      for (const Run& run : program) {
        values.push_back(run.state == State::kEnded ? run.value : 0);
        results.called_off += run.works ? 0 : 1;
      }
    }
    for (const auto& [root, cell] : persistent_places_) {
      const auto pool = stream_.residents->info(root).pool;
      results.persistents.push_back(
          pool == prefetch::kNoPool
              ? persistent_controls_[root]
              : cells_[pool][persistent_slots_[root] * slot_cells_[pool] + cell]);
    }
    return results;
  }

 private:
  enum class State { kWaiting, kBegun, kEnded };
  struct Run {
    State state = State::kWaiting;
    bool works = true;  // its predicate lets it
    std::uint64_t value = 0;
    std::uint64_t kept = 0;
  };
  struct Readings {
    std::uint64_t all;   // a hash of everything it reads
    std::uint64_t kept;  // of what it does not write as well
    bool poison;         // there was some
  };
  using Owner = std::atomic<std::uint64_t>;

  /// In each slot of a pool one for each leaf of any buffer there.
  void make_cells(const prefetch::BufferTable& table) {
    for (const prefetch::BufferId root : table.roots()) {
      const prefetch::PoolId pool = table.info(root).pool;
      if (pool == prefetch::kNoPool) continue;
      const auto [begin, end] = table.leaves(root);
      slot_cells_[pool] = std::max<std::size_t>(slot_cells_[pool], end - begin);
    }
  }
  static std::uint64_t owner(std::uint64_t instance, prefetch::BufferId root) {
    return instance << 32 | (std::uint64_t{root} + 1);
  }
  void complain(const char* text) {
    const char* none = nullptr;
    complaint_.compare_exchange_strong(none, text);
  }

  void claim_slot(prefetch::PoolId pool, std::uint32_t slot, std::uint64_t self) {
    SLUICE_CHECK(slot < owners_[pool].size(), kLogic, "a pool has handed out more than it has");
    std::uint64_t current = 0;
    if (!owners_[pool][slot].compare_exchange_strong(current, self, std::memory_order_relaxed) &&
        current != self) {
      complain("two buffers own one slot");
    }
  }

  template <class SlotOf>
  bool works(prefetch::OpRef ref, SlotOf slot_of) {
    const prefetch::Program& program = *stream_.programs[ref.instance];
    const auto& predicate = program.ops()[ref.index].predicate;
    return !predicate ||
           lets_run(*predicate, cell(ref, deciding_leaf(program, *predicate), slot_of));
  }

  template <class SlotOf>
  Readings read(prefetch::OpRef ref, const Run& run, SlotOf slot_of) {
    const prefetch::Program& program = *stream_.programs[ref.instance];
    const auto& access = program.accesses(ref.index);
    Readings readings{mix(ref.instance, ref.index), 0, false};
    const auto take = [&](prefetch::LeafId leaf) {
      const std::uint64_t value = cell(ref, leaf, slot_of);
      readings.poison |= value == kPoison;
      readings.all = mix(readings.all, value);
      if (!run.works || !access.writes.contains(leaf)) readings.kept = mix(readings.kept, value);
    };
    if (const auto& predicate = program.ops()[ref.index].predicate) {
      take(deciding_leaf(program, *predicate));
    }
    if (run.works) std::for_each(access.reads.begin(), access.reads.end(), take);
    return readings;
  }

  template <class SlotOf>
  std::uint64_t& cell(prefetch::OpRef ref, prefetch::LeafId leaf, SlotOf slot_of) {
    const prefetch::Program& program = *stream_.programs[ref.instance];
    const prefetch::LeafId first = program.transients().first_leaf();
    const auto [root, cell] =
        leaf < first ? persistent_places_[leaf] : places_[ref.instance][leaf - first];
    const auto pool = program.info(root).pool;
    if (pool != prefetch::kNoPool) return cells_[pool][slot_of(root) * slot_cells_[pool] + cell];
    if (program.persistent(root)) return persistent_controls_[root];
    return controls_[ref.instance][root - program.transients().first_buffer()];
  }

  const RandomStream& stream_;
  std::vector<LeafPlace> persistent_places_;
  std::vector<std::vector<LeafPlace>> places_;        // per program instance
  std::vector<std::vector<std::uint64_t>> cells_;     // per pool: slots x cells
  std::vector<std::size_t> slot_cells_;               // per pool
  std::vector<std::vector<Owner>> owners_;            // per pool and slot; 0: nobody
  std::vector<std::uint32_t> persistent_slots_;       // by BufferId
  std::vector<std::uint64_t> persistent_controls_;    // by BufferId
  std::vector<std::vector<std::uint64_t>> controls_;  // per program instance
  std::vector<std::vector<Run>> runs_;                // per program instance
  std::atomic<const char*> complaint_{nullptr};
  std::atomic<std::size_t> begun_{0};
  std::atomic<std::size_t> ended_{0};
};

}  // namespace sluice::testing
