/// A checkpoint of a run, looked at before anything of it is believed: COMPLETE against the
/// manifest, the manifest against itself, each file's size and header against the manifest, small
/// files against their sums. State and gradients are checked as they are read.
///
/// Owns    the open files
/// Thread  const members: any, several at once
/// Throws  kCheckpoint, naming the file, the record and the reason; kIo
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/ticket.h"
#include "engine/checkpoint/manifest.h"
#include "engine/shape/model.h"
#include "nvme/options.h"
#include "nvme/unaligned.h"

namespace sluice::checkpoint {

/// What COMPLETE vouches for; no other file of the checkpoint is looked at.
Manifest read_manifest(const std::filesystem::path& folder);

class StateReader {
 public:
  StateReader(const std::filesystem::path& folder, const nvme::Options& queue);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  /// Throws kConfig when the state is that of another model, naming the first difference.
  void check_model(const shape::Model& model) const;
  /// That of its config.json, checked.
  shape::Model model() const;

  /// Begins to read elements of a segment, whole grains, into `state`: master, m and v of them, one
  /// after the other, on kAlignment. However records are cut.
  Ticket read(int segment, std::uint64_t first_elem, std::span<float> state) const;

  /// An update is pending (Position), and its gradient is here, of every segment.
  bool has_gradients() const { return !manifest_.gradients.empty(); }
  DType gradient_dtype(int segment) const { return gradient_of(segment).dtype; }
  /// What the update multiplies it by.
  float gradient_factor(int segment) const { return gradient_of(segment).factor; }
  /// As read(): elements of the segment's dtype.
  Ticket read_gradient(int segment, std::uint64_t first_elem, std::span<std::byte> gradient) const;

  /// Elements of a record.
  struct Piece {
    std::size_t record;  ///< of Manifest::of(kind)
    std::uint64_t first_elem, elems;
  };
  /// Those that a range of a segment meets, by rising element.
  std::vector<Piece> pieces(RecordKind kind, int segment, std::uint64_t first_elem,
                            std::uint64_t elems) const;
  /// "FILE: the record of layer.7[0:4096], 48 KiB at byte 4096", for messages.
  std::string describe(const Record& record) const;

 private:
  void check_files() const;
  const Record& gradient_of(int segment) const;
  Ticket read(RecordKind kind, DType dtype, int segment, std::uint64_t first_elem,
              std::span<std::byte> chunk) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::unique_ptr<nvme::UnalignedFiles> files_;
};

/// Adds up what was read of each record, in any order, and compares once a record is whole.
///
/// Thread  any, several at once
class RecordSums {
 public:
  explicit RecordSums(const StateReader& reader);

  /// Grains of all three parts of a chunk's state as it was read: [begin, end) of its elements,
  /// each of them once. Throws kCheckpoint, naming the record, when one is whole and not what was
  /// written.
  void add(int segment, std::uint64_t first_elem, std::span<const float> state, std::size_t begin,
           std::size_t end);
  /// The same of a chunk's gradient, in the segment's dtype.
  void add_gradient(int segment, std::uint64_t first_elem, std::span<const std::byte> gradient,
                    std::size_t begin, std::size_t end);
  /// The same for those who go on: such records of Manifest::of(kind), none or some.
  std::vector<std::size_t> compare(RecordKind kind, int segment, std::uint64_t first_elem,
                                   std::span<const std::byte> chunk, std::size_t begin,
                                   std::size_t end);
  /// Of one of those, for messages.
  std::string damage(RecordKind kind, std::size_t record) const;

 private:
  void check(RecordKind kind, const std::vector<std::size_t>& damaged) const;

  struct Sum {
    std::atomic<std::uint64_t> sum{0};
    std::atomic<std::uint64_t> elems{0};
  };
  const StateReader& reader_;
  std::array<std::vector<Sum>, kRecordKinds.size()> sums_;  // by kind and record
};

}  // namespace sluice::checkpoint
