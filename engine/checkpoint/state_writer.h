/// Writes one checkpoint of a run: records of its state, and of a gradient that waits for its
/// update, as they lie in memory; then what they mean.
///
/// Order   files, each synced; manifest.json, synced; COMPLETE, with the manifest's sum, synced; at
///         last the folder's name: under it a folder is whole, unless somebody changed it
/// Owns    a temporary folder beside the target, until publish(); a StateWriter dropped before that
///         leaves nothing
/// Thread  write(), write_gradient(): any, several at once on different records; the rest one at a
/// time Throws  kConfig when the target exists; kBudget when the disk is too full, before anything
/// is
///         written; kIo; as nvme::UnalignedFiles. After an error only dropping it is left
#pragma once

#include <cstddef>
#include <cstdint>
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

/// What is known of a record of a gradient once it is written.
struct GradientSum {
  std::uint64_t sum = 0;
  float factor = 0;  ///< Record::factor; the same for all of a segment
};

class StateWriter {
 public:
  /// `manifest` has been laid out, and has no position yet. Claims the space at once.
  /// `companions.config` is not null.
  StateWriter(Manifest manifest, const std::filesystem::path& folder, const Companions& companions,
              const nvme::Options& queue);

  /// Master, m and v of a record, which must stay until the ticket is done; `state` on kAlignment.
  Ticket write(std::size_t record, std::span<const std::byte> state) const;
  /// The same of a record of Manifest::gradients.
  Ticket write_gradient(std::size_t record, std::span<const std::byte> gradient) const;
  /// Everything but the name; all tickets are done. `sums` by record, `gradients` by that of a
  /// gradient; `position` says that an update is pending where there are some, and only there.
  void seal(const Position& position, std::span<const std::uint64_t> sums,
            std::span<const GradientSum> gradients = {});
  /// After seal().
  void publish();

  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& target() const { return folder_.target(); }

 private:
  Ticket write(const Record& record, std::span<const std::byte> bytes) const;

  Manifest manifest_;
  TemporaryFolder folder_;
  std::vector<File> files_;
  std::optional<nvme::UnalignedFiles> drive_;  // until sealed
};

}  // namespace sluice::checkpoint
