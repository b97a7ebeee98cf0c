/// Writes one checkpoint of a run: records of its state, as they lie in memory, then what they
/// mean.
///
/// Order   files, each synced; manifest.json, synced; COMPLETE, with the manifest's sum, synced; at
///         last the folder's name: under it a folder is whole, unless somebody changed it
/// Owns    a temporary folder beside the target, until publish(); a StateWriter dropped before that
///         leaves nothing
/// Thread  write(): any, several at once on different records; the rest one at a time
/// Throws  kConfig when the target exists; kBudget when the disk is too full, before anything is
///         written; kIo; as nvme::UnalignedFiles. After an error only dropping it is left
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/ticket.h"
#include "engine/base/units.h"
#include "engine/checkpoint/companions.h"
#include "engine/checkpoint/file.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/temporary_folder.h"
#include "nvme/options.h"
#include "nvme/unaligned.h"

namespace sluice::checkpoint {

inline constexpr std::string_view kCompleteName = "COMPLETE";
/// Of a checkpoint: config.json and what stands beside it, as a model's folder.
inline constexpr std::string_view kModelFolder = "model";

/// Bytes of a checkpoint, but for small files.
Bytes bytes_of(const Manifest& manifest);

class StateWriter {
 public:
  /// `manifest` has been laid out, and has no position yet. Claims the space at once.
  /// `companions.config` is not null.
  StateWriter(Manifest manifest, const std::filesystem::path& folder, const Companions& companions,
              const nvme::Options& queue);

  /// Master, m and v of a record, which must stay until the ticket is done; `state` on kAlignment.
  Ticket write(std::size_t record, std::span<const std::byte> state) const;
  /// Everything but the name; all tickets are done. `sums` by record.
  void seal(const Position& position, std::span<const std::uint64_t> sums);
  /// After seal().
  void publish();

  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& target() const { return folder_.target(); }

 private:
  Manifest manifest_;
  TemporaryFolder folder_;
  std::vector<File> files_;
  std::optional<nvme::UnalignedFiles> drive_;  // until sealed
};

}  // namespace sluice::checkpoint
