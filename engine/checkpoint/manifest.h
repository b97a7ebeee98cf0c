/// manifest.json of a checkpoint: where the run stood, what its numbers depend on, and which bytes
/// of which file are which part of the state, or of a gradient that waits for its update.
///
/// Throws  kCheckpoint, naming the file and the reason, for anything that is no such manifest, or
///         one of a newer sluice
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/units.h"
#include "engine/checkpoint/header.h"
#include "engine/checkpoint/record.h"
#include "engine/shape/model.h"
#include "engine/zero/chunk.h"

namespace sluice::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
/// The newest of the format that is read. 1 has no gradients; a reader that knows no other one
/// must not pass over them.
inline constexpr std::int64_t kManifestVersion = 2;
inline constexpr Bytes kMaxManifest = 256_MiB;

/// Where a run stands between two steps; also as bytes in a buffer of a program.
struct Position {
  std::int64_t step = 0;            ///< steps done; of batches taken too
  std::int64_t applied = 0;         ///< updates that the state has: Adam's t
  std::int64_t skipped_in_row = 0;  ///< steps skipped since the last applied one
  Bytes nvme_written = 0;           ///< to the nvme tier since the run began
  std::int64_t loss_scale = 0;      ///< that fp16 tries next; 0 = none
  std::int64_t scale_held = 0;      ///< updates decided with it
  /// The update of `step`, where it is still to come: Manifest::gradients has what it needs.
  enum class Pending : std::uint8_t {
    kNone,
    kApplied,  ///< it will be applied
    kSkipped,  ///< it will change nothing, as that of a skipped step
  } pending = Pending::kNone;
  float pending_lr = 0;  ///< its learning rate; finite

  bool operator==(const Position&) const = default;
};

/// A tensor of a segment's flat buffer, as other tools know it.
struct TensorPlace {
  std::string name;
  std::uint64_t offset_elems = 0;
  std::vector<std::int64_t> shape;

  bool operator==(const TensorPlace&) const = default;
};

struct SegmentPlace {
  std::string name;  ///< "layer.7"
  std::uint64_t elems = 0;
  std::vector<TensorPlace> tensors;

  bool operator==(const SegmentPlace&) const = default;
};

/// Values of the run file, what `auto` came to, and on what the run was, by key, as text. Nothing
/// here reads them.
using Settings = std::map<std::string, std::string>;

struct Manifest {
  std::string sluice;  ///< version that wrote it
  Position position;
  Settings settings;
  std::vector<SegmentPlace> segments;
  std::vector<std::string> files;               ///< of records, beside the manifest
  std::vector<Record> records;                  ///< of state; by segment and element, without a gap
  std::vector<Record> gradients;                ///< the same of gradients; none: no update waits
  std::map<std::string, std::uint64_t> beside;  ///< other files of the folder: their sums

  const std::vector<Record>& of(RecordKind kind) const {
    return kind == RecordKind::kState ? records : gradients;
  }
  /// Of the format in which it is written.
  std::int64_t version() const { return gradients.empty() ? 1 : 2; }
};

std::vector<SegmentPlace> places_of(const shape::Model& model);

/// A record of each chunk, files filled in order with at most `file_size` bytes, or one record.
/// `chunks` by segment. Fills in `files` and `records`, but for the sums.
void lay_out(Manifest& manifest, const std::vector<std::vector<zero::Chunk>>& chunks,
             Bytes file_size);
/// The same of gradients, in files of their own, after lay_out(). `chunks` may be cut otherwise.
/// Fills in all but sums and factors.
void lay_out_gradients(Manifest& manifest, const std::vector<std::vector<zero::Chunk>>& chunks,
                       std::span<const DType> dtype_by_segment, Bytes file_size);
/// Where records lie in their files, given which file each is in.
void place_records(Manifest& manifest);

/// What it says of a pending update that cannot be, in words; empty: nothing.
std::string contradiction_of(const Manifest& manifest);

/// What a file of records begins with: a tensor of each part of a record, data on kAlignment.
std::string header_of(const Manifest& manifest, std::size_t file);

/// Of whole files, by Manifest::files.
std::vector<Bytes> file_sizes(const Manifest& manifest);

/// Of a small file: the XXH3 of all of it.
std::uint64_t sum_of_text(std::string_view text);
/// A number as manifests write sums.
std::string hex(std::uint64_t sum);

std::string to_json(const Manifest& manifest);
/// Records tile their segments, and lie in their files as lay_out() puts them.
Manifest parse_manifest(std::string_view text, std::string_view file);

}  // namespace sluice::checkpoint
