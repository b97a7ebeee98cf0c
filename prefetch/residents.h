/// The machine's resources as data, and the run-wide table of what crosses programs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/units.h"

namespace sluice::prefetch {

using PoolId = std::uint32_t;
using LaneId = std::uint32_t;
using BufferId = std::uint32_t;
/// What dependencies are tracked on: a part, a root without parts, or what no part of a root
/// covers.
using LeafId = std::uint32_t;
struct LeafRange {
  LeafId begin = 0, end = 0;
  friend bool operator==(const LeafRange&, const LeafRange&) = default;
};

/// The pool of buffers without bytes: pure control dependencies. They have neither slots nor parts.
inline constexpr PoolId kNoPool = ~PoolId{0};

enum class Tier : std::uint8_t { kGpu, kCpu, kNvme };
inline constexpr std::array kTiers = {Tier::kGpu, Tier::kCpu, Tier::kNvme};
std::string_view name_of(Tier tier);
/// Into what there is one of per tier.
constexpr std::size_t index(Tier tier) {
  return static_cast<std::size_t>(tier);
}
using BytesByTier = std::array<Bytes, kTiers.size()>;

/// The class of bytes; on every byte, for the ledger and for messages.
enum class MemoryTag : std::uint8_t {
  kParam,  ///< weights for compute
  kGradient,
  kState,       ///< master, m, v
  kActivation,  ///< block inputs and their gradients
  kKept,        ///< what kept layers leave from forward to backward
  kWorkspace,
  kBatch,
  kControl
};
inline constexpr std::size_t kMemoryTags = 8;
std::string_view name_of(MemoryTag tag);

/// Memory is handed out in whole slots of one size: one buffer, one slot.
struct Pool {
  std::string name;  ///< "gpu param 28.0 MiB"
  Tier tier = Tier::kCpu;
  Bytes slot = 0;           ///< bytes; a multiple of kAlignment
  std::uint32_t slots = 0;  ///< how many there are
};
using Pools = std::vector<Pool>;

enum class Issue : std::uint8_t {
  kFifo,        ///< a stream: program order, waits at the head; width counts ops until issued
  kOldestReady  ///< the oldest op that is granted and ready; width counts ops until completed
};

/// Something that runs ops, `width` at a time.
struct Lane {
  std::string name;
  std::uint32_t width = 1;
  Issue issue = Issue::kOldestReady;
};
using Lanes = std::vector<Lane>;

struct Buffer {
  PoolId pool = kNoPool;
  Bytes bytes = 0;
  MemoryTag tag = MemoryTag::kControl;
};

/// Buffers and their parts. One instance holds what crosses programs; every Program has one more
/// for its transients, numbered after it.
///
/// Parts of one root are disjoint, one level deep. What no part covers is a leaf of its own.
class BufferTable {
 public:
  explicit BufferTable(BufferId first_buffer = 0, LeafId first_leaf = 0)
      : first_buffer_(first_buffer), first_leaf_(first_leaf) {}

  BufferId buffer(const Buffer& buffer);
  /// Throws kLogic when the parent is a part, or the bytes leave it; seal() throws when parts
  /// overlap.
  BufferId part_of(BufferId parent, Bytes offset, Bytes bytes);
  /// No more buffers or parts; leaves are numbered.
  void seal();

  bool sealed() const { return sealed_; }
  BufferId first_buffer() const { return first_buffer_; }
  BufferId end_buffer() const { return first_buffer_ + static_cast<BufferId>(entries_.size()); }
  LeafId first_leaf() const { return first_leaf_; }
  LeafId end_leaf() const { return first_leaf_ + leaves_; }
  const std::vector<BufferId>& roots() const { return roots_; }

  BufferId root(BufferId id) const { return entry(id).root; }
  Bytes offset(BufferId id) const { return entry(id).offset; }
  const Buffer& info(BufferId id) const { return entry(id).buffer; }
  /// Sealed only. A part is one leaf; a root is all of its leaves.
  LeafRange leaves(BufferId id) const { return entry(id).leaves; }

 private:
  struct Entry {
    Buffer buffer;
    BufferId root;
    Bytes offset = 0;
    LeafRange leaves{0, 0};
    std::vector<BufferId> parts;
  };
  const Entry& entry(BufferId id) const;
  Entry& entry(BufferId id);

  BufferId first_buffer_;
  LeafId first_leaf_;
  LeafId leaves_ = 0;
  bool sealed_ = false;
  std::vector<Entry> entries_;
  std::vector<BufferId> roots_;
};

/// The persistent buffers of a run: weights at home, masters, moments. Sealed before any program.
using Residents = BufferTable;

}  // namespace sluice::prefetch
