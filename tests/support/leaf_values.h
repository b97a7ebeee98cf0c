/// What the ops of a random stream compute when it is run serially: the oracle of the property
/// tests.
///
/// Every leaf holds one number, and every op computes numbers from those it reads. An op whose
/// predicate says no reads its record alone and writes nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/random_program.h"

namespace sluice::testing {

/// In every cell that nobody owns, or that is being written.
inline constexpr std::uint64_t kPoison = 0xdeadbeefdeadbeefULL;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ULL + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Where the number of a leaf lies: its root, and a cell of that.
struct LeafPlace {
  prefetch::BufferId root;
  std::size_t cell;
};

/// By leaf - table.first_leaf(): each leaf of a root has a cell.
inline std::vector<LeafPlace> leaf_places(const prefetch::BufferTable& table) {
  std::vector<LeafPlace> places(table.end_leaf() - table.first_leaf());
  for (const prefetch::BufferId root : table.roots()) {
    const auto [begin, end] = table.leaves(root);
    for (auto leaf = begin; leaf < end; ++leaf) {
      places[leaf - table.first_leaf()] = {root, leaf - begin};
    }
  }
  return places;
}

/// The leaf of a predicate's record that says whether its op does its work, and what it says.
inline prefetch::LeafId deciding_leaf(const prefetch::Program& program,
                                      const prefetch::Predicate& predicate) {
  return program.table(predicate.record).leaves(predicate.record).begin;
}
inline bool lets_run(const prefetch::Predicate& predicate, std::uint64_t value) {
  return (value >> predicate.field) % 2 == 1;
}

/// What the ops of a stream compute, and the persistents after it (by leaf).
struct Results {
  std::vector<std::vector<std::uint64_t>> ops;
  std::vector<std::uint64_t> persistents;
  std::size_t called_off = 0;  ///< ops whose predicate said no
  friend bool operator==(const Results&, const Results&) = default;
};

/// The serial run, with a number per leaf and neither slots nor scoreboard: the oracle.
inline Results expected(const RandomStream& stream) {
  Results results;
  results.persistents.assign(stream.residents->end_leaf(), kPoison);
  for (std::uint32_t instance = 0; instance < stream.programs.size(); ++instance) {
    const prefetch::Program& program = *stream.programs[instance];
    const prefetch::LeafId first = program.transients().first_leaf();
    std::vector<std::uint64_t> transients(program.transients().end_leaf() - first, kPoison);
    const auto leaf = [&](prefetch::LeafId id) -> std::uint64_t& {
      return id < first ? results.persistents[id] : transients[id - first];
    };
    std::vector<std::uint64_t>& values = results.ops.emplace_back();
    for (std::uint32_t i = 0; i < program.ops().size(); ++i) {
      std::uint64_t value = mix(instance, i);
      const auto& predicate = program.ops()[i].predicate;
      if (predicate) value = mix(value, leaf(deciding_leaf(program, *predicate)));
      if (!predicate || lets_run(*predicate, leaf(deciding_leaf(program, *predicate)))) {
        for (const auto id : program.accesses(i).reads) value = mix(value, leaf(id));
        for (const auto id : program.accesses(i).writes) leaf(id) = mix(value, id);
      } else {
        ++results.called_off;
      }
      values.push_back(value);
    }
  }
  return results;
}

}  // namespace sluice::testing
