/// Which ops of a stream are ordered, straight from the definition, and which of these orders are
/// gone when one declared access is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

/// Two ops are ordered when they share a leaf that one of them writes, or a lane that is a stream.
/// Inside, the ops of all programs are numbered through, and so are their leaves.
class Orders {
 public:
  explicit Orders(const RandomStream& stream);

  /// When `program` leaves it out, wherever that stands in the stream.
  Effect without(const prefetch::Program& program, const Omission& left_out);

  /// An op of a program, wherever that stands.
  std::vector<prefetch::OpRef> instances_of(const prefetch::Program& program, std::size_t op) const;
  /// The ops that those have to follow because of what is left out.
  std::vector<prefetch::OpRef> predecessors(const prefetch::Program& program,
                                            const Omission& left_out) const;

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

  std::size_t place(std::uint32_t instance, prefetch::LeafId leaf) const;
  prefetch::OpRef ref(std::size_t op) const;
  std::vector<std::uint32_t> instances(const prefetch::Program& program) const;
  Touch& touch(std::size_t leaf, std::size_t op);
  Effect judge(const prefetch::Program& program, const Omission& left_out,
               const std::map<std::size_t, Touches>& remaining);
  Effect judge_slot(const prefetch::Program& program, const Omission& left_out);
  bool ordered(std::size_t a, std::size_t b);
  template <class Found>
  static void for_each_order(const Touches& touches, Found found);

  const RandomStream& stream_;
  std::vector<std::size_t> first_op_, first_leaf_;  // by instance
  std::vector<Touches> touches_;                    // by leaf
  std::vector<std::vector<Before>> before_;         // by op
  // Of the omission that is being judged.
  std::vector<bool> changed_;                                // by leaf: an access is left out
  std::vector<std::pair<std::size_t, std::size_t>> orders_;  // of those leaves, as they remain
  std::vector<std::size_t> seen_;                            // by op: the last visit
  std::size_t visit_ = 0;
};

}  // namespace sluice::testing
