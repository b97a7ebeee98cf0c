/// A step, written serially: ops in an order that is correct when run one by one.
///
/// Dependencies and lifetimes are derived from what each op reads and writes, never stated. A
/// transient is defined by the first op in program order that names it or any part of it, and freed
/// when every op that names it is done. A program's shape never depends on a loss or a norm.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prefetch/leaf_set.h"
#include "prefetch/residents.h"

namespace sluice::prefetch {

/// What an op does. Scheduling never looks inside: `id` is for the handlers, `name` for people.
struct OpKind {
  std::uint16_t id = 0;
  const char* name = "op";
};

/// Which piece of the model an op is about; -1 where it does not apply.
struct Where {
  std::int32_t segment = -1;
  std::int32_t chunk = -1;
  std::int32_t micro_batch = -1;
};

/// What an op costs, in the unit of its lane.
struct Cost {
  double bytes = 0;
  double flops = 0;
};

/// What tells an op at run time whether to do its work: a field of a record that an op before it
/// writes. Scheduling never looks inside: dependencies and lifetimes are the same either way.
struct Predicate {
  BufferId record = 0;
  std::uint16_t field = 0;  ///< for the handlers, like OpKind::id
};

struct Op {
  OpKind kind;
  LaneId lane = 0;
  Where where;
  std::vector<BufferId> reads, writes;  ///< a buffer that is updated is in both
  Cost cost;
  /// The op reads the record as well; it is not among `reads`.
  std::optional<Predicate> predicate = {};
  /// What each buffer is to the op, reads first, then writes: for the handlers, like OpKind::id.
  std::vector<std::uint8_t> names = {};
};

/// "backward segment 3 micro-batch 0", for messages.
std::string describe(const Op& op);

class Program {
 public:
  Program(std::string name, std::shared_ptr<const Residents> residents);

  // Writing it.
  BufferId buffer(const Buffer& buffer) { return transients_.buffer(buffer); }
  BufferId part_of(BufferId parent, Bytes offset, Bytes bytes) {
    return transients_.part_of(parent, offset, bytes);
  }
  void op(Op op);
  /// No more ops. Resolves who defines and who last uses each transient.
  void seal();

  /// The same program with other costs, by op: what a run measured, for instance. Sealed only.
  std::shared_ptr<const Program> with_costs(const std::vector<Cost>& costs) const;

  // Reading it (sealed).
  const std::string& name() const { return name_; }
  const std::vector<Op>& ops() const { return ops_; }
  const Residents& residents() const { return *residents_; }
  const BufferTable& transients() const { return transients_; }
  bool persistent(BufferId id) const { return id < residents_->end_buffer(); }
  const BufferTable& table(BufferId id) const { return persistent(id) ? *residents_ : transients_; }
  BufferId root(BufferId id) const { return table(id).root(id); }
  const Buffer& info(BufferId id) const { return table(id).info(id); }

  struct Accesses {
    LeafSet reads, writes;
    std::vector<BufferId> roots;    ///< transient roots it names, in order of first mention
    std::vector<BufferId> defines;  ///< those of them that it is the first to name
  };
  const Accesses& accesses(std::size_t op) const { return accesses_[op]; }
  /// How many ops name a transient root.
  std::uint32_t users(BufferId root) const { return users_[root - transients_.first_buffer()]; }

 private:
  std::string name_;
  std::shared_ptr<const Residents> residents_;
  BufferTable transients_;
  std::vector<Op> ops_;
  std::vector<Accesses> accesses_;
  std::vector<std::uint32_t> users_;
};

/// What the serial run of a program needs.
struct Minimum {
  std::vector<std::uint32_t>
      slots;  ///< per pool: persistents and the largest live set of transients
};

/// Which persistent leaves have been written by the programs so far in the stream.
class Initialised {
 public:
  explicit Initialised(const Residents& residents) : written_(residents.end_leaf(), false) {}
  bool contains(LeafId leaf) const { return written_[leaf]; }
  void insert(LeafId leaf) { written_[leaf] = true; }

 private:
  std::vector<bool> written_;
};

/// Verifies the promises of a program: every lane and pool exists, every buffer fits a slot, each
/// leaf is written before it is read. Adds what the program writes to `initialised`. Throws kLogic,
/// naming the op, when one is broken. Looks at no slot counts.
Minimum serial_minimum(const Program& program, const Pools& pools, const Lanes& lanes,
                       Initialised& initialised);

/// The same, and that the serial run fits the pools as they are: the condition under which no
/// overlapped run can get stuck. Throws kBudget with the op, the pool, the class of bytes, asked,
/// free.
Minimum check(const Program& program, const Pools& pools, const Lanes& lanes,
              Initialised& initialised);

}  // namespace sluice::prefetch
