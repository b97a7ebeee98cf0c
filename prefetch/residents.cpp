#include "prefetch/residents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/error.h"

namespace sluice::prefetch {

std::string_view name_of(Tier tier) {
  constexpr std::array<std::string_view, 3> kNames = {"gpu", "cpu", "nvme"};
  return kNames[index(tier)];
}

std::string_view name_of(MemoryTag tag) {
  constexpr std::array<std::string_view, kMemoryTags> kNames = {
      "parameters",  "gradients", "optimizer state", "activations",
      "kept layers", "workspace", "batch",           "control"};
  return kNames[static_cast<std::size_t>(tag)];
}

const BufferTable::Entry& BufferTable::entry(BufferId id) const {
  SLUICE_CHECK(
      id >= first_buffer_ && id < end_buffer(), kLogic,
      fmt::format("buffer {} is not in this table ({} to {})", id, first_buffer_, end_buffer()));
  return entries_[id - first_buffer_];
}

BufferTable::Entry& BufferTable::entry(BufferId id) {
  return const_cast<Entry&>(std::as_const(*this).entry(id));
}

BufferId BufferTable::buffer(const Buffer& buffer) {
  SLUICE_CHECK(!sealed_, kLogic, "a buffer was added to a sealed table");
  SLUICE_CHECK((buffer.bytes == 0) == (buffer.pool == kNoPool), kLogic,
               "a buffer has bytes if and only if it has a pool");
  const BufferId id = end_buffer();
  entries_.push_back({buffer, id, 0, {0, 0}, {}});
  roots_.push_back(id);
  return id;
}

BufferId BufferTable::part_of(BufferId parent, Bytes offset, Bytes bytes) {
  SLUICE_CHECK(!sealed_, kLogic, "a part was added to a sealed table");
  const Entry& root = entry(parent);
  SLUICE_CHECK(root.root == parent, kLogic, "a part of a part: name the root");
  SLUICE_CHECK(bytes > 0 && offset <= root.buffer.bytes && bytes <= root.buffer.bytes - offset,
               kLogic,
               fmt::format("a part of {} bytes at {} is empty or leaves its root of {} bytes",
                           bytes, offset, root.buffer.bytes));
  const Buffer info{root.buffer.pool, bytes, root.buffer.tag};
  const BufferId id = end_buffer();
  entry(parent).parts.push_back(id);
  entries_.push_back({info, parent, offset, {0, 0}, {}});
  return id;
}

void BufferTable::seal() {
  SLUICE_CHECK(!sealed_, kLogic, "a table is sealed once");
  sealed_ = true;
  for (const BufferId id : roots_) {
    Entry& root = entry(id);
    const LeafId begin = end_leaf();
    Bytes covered = 0;
    std::sort(root.parts.begin(), root.parts.end(),
              [&](BufferId a, BufferId b) { return offset(a) < offset(b); });
    for (const BufferId part : root.parts) {
      SLUICE_CHECK(offset(part) >= covered, kLogic, "parts of one buffer overlap");
      covered = offset(part) + info(part).bytes;
      entry(part).leaves = {end_leaf(), end_leaf() + 1};
      ++leaves_;
    }
    Bytes named = 0;
    for (const BufferId part : root.parts) named += info(part).bytes;
    if (root.parts.empty() || named < root.buffer.bytes) ++leaves_;
    root.leaves = {begin, end_leaf()};
  }
}

}  // namespace sluice::prefetch
