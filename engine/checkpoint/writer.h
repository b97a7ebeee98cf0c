/// Writes the weights of a model as transformers loads them: safetensors and config.json. Around
/// the page cache where that works; write() returns while the drive is still at it.
///
/// Owns    a temporary folder beside the target; nothing stands under the target's name before
///         finish() has put everything on disk, and a Writer dropped before that leaves nothing
/// Units   elements of a segment's flat buffer (zero::Layout)
/// Thread  one at a time
/// Throws  kConfig when the target exists; kBudget when the disk is too full, with need and free;
///         kIo, also where a filesystem that claims no space ahead fills up later; as
///         nvme::UnalignedFiles; kLogic for elements that are written twice, never, or outside.
///         After an error only dropping it is left
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/ticket.h"
#include "engine/base/units.h"
#include "engine/checkpoint/companions.h"
#include "engine/checkpoint/coverage.h"
#include "engine/checkpoint/file.h"
#include "engine/checkpoint/index.h"
#include "engine/checkpoint/temporary_folder.h"
#include "engine/shape/model.h"
#include "engine/zero/layout.h"
#include "nvme/aligned.h"
#include "nvme/options.h"
#include "nvme/unaligned.h"

namespace sluice::checkpoint {

/// Has work done for disjoint ranges that together are [0, count), in any order, on any threads;
/// returns when all are done, and throws what one of them threw.
using Each = std::function<void(std::size_t count,
                                const std::function<void(std::size_t begin, std::size_t end)>&)>;

/// The caller's thread alone.
void in_one_piece(std::size_t count,
                  const std::function<void(std::size_t begin, std::size_t end)>& work);

class Writer {
 public:
  /// Checks and claims the space at once. More than `shard_size` bytes go to several files with an
  /// index; a tensor is never cut. `each` has the threads that round, `queue` is how bytes get to
  /// the drive.
  Writer(const shape::Model& model, DType dtype, const std::filesystem::path& folder,
         Bytes shard_size = 5_GiB, Companions companions = {}, Each each = in_one_piece,
         const nvme::Options& queue = {});

  /// Elements first_elem, ... of a segment: pieces of any size in any order, every element once.
  /// Rounded to the dtype (nearest, ties to even); padding is dropped.
  void write(int segment, std::uint64_t first_elem, std::span<const float> master_values);

  /// The same of bits that are of its dtype already, one of 16 bits (kLogic).
  void write_rounded(int segment, std::uint64_t first_elem, std::span<const std::uint16_t> values);

  /// Checks that nothing is missing, makes everything durable and gives the folder its name.
  void finish();

 private:
  enum class State : std::uint8_t { kOpen, kBroken, kFinished };
  struct Place {
    std::size_t file;
    Bytes offset;  // of the tensor's first element in the file
  };
  struct SegmentPlan {
    shape::Segment segment;
    zero::Layout layout;
    std::vector<Place> places;  // beside layout.tensors
    Coverage written;
  };

  /// Memory that the drive takes one piece from.
  struct Slot {
    nvme::AlignedBytes room;
    Ticket written;
  };

  template <class T>
  void write_values(int segment, std::uint64_t first_elem, std::span<const T> values);
  template <class T>
  void put(const Place& place, std::uint64_t first, std::span<const T> values);
  Slot& next_slot();
  void round_to(std::byte* out, std::span<const float> values) const;
  void round_to(std::byte* out, std::span<const std::uint16_t> rounded) const;
  void check_complete() const;
  void check_open(std::string_view asked) const;
  std::string config_text() const;

  shape::Decoder decoder_;
  Companions companions_;
  DType dtype_;
  TemporaryFolder folder_;
  std::vector<SegmentPlan> segments_;
  std::vector<File> files_;
  WeightMap weights_;
  Bytes total_ = 0;
  Each each_;
  std::vector<Slot> slots_;
  std::size_t next_slot_ = 0;
  std::optional<nvme::UnalignedFiles> drive_;  // of files_; drains before the slots go
  State state_ = State::kOpen;
};

}  // namespace sluice::checkpoint
