/// What is measured: a line of bytes on one drive, or striped over several.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ticket.h"
#include "nvme/file.h"
#include "nvme/io_queue.h"
#include "nvme/options.h"

namespace sluice::bench {

/// Its files have no name: whatever ends the process, nothing is left.
///
/// Thread  transfer() from any; the rest one at a time, while nothing is in flight
/// Throws  kIo from the ticket
class Target {
 public:
  Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  virtual Bytes bytes() const = 0;
  /// From now on transfers go through queues made like this, with that memory enrolled.
  virtual void use(const nvme::Options& options, const std::shared_ptr<nvme::KernelSeam>& seam,
                   const std::vector<std::span<std::byte>>& memory) = 0;
  /// Both ends on multiples of kAlignment.
  virtual Ticket transfer(nvme::Op op, Bytes offset, std::span<std::byte> memory) = 0;
  /// For messages.
  virtual std::string name() const = 0;
  /// Engine and depth, as it came to be.
  virtual std::string describe() const = 0;
};

/// A file in a folder.
class FolderTarget final : public Target {
 public:
  /// Throws  kBudget when the space is not there; kEnv, kIo as nvme::open_unnamed()
  FolderTarget(const std::string& folder, Bytes bytes, nvme::Direct direct);

  Bytes bytes() const override { return bytes_; }
  void use(const nvme::Options& options, const std::shared_ptr<nvme::KernelSeam>& seam,
           const std::vector<std::span<std::byte>>& memory) override;
  Ticket transfer(nvme::Op op, Bytes offset, std::span<std::byte> memory) override;
  std::string name() const override { return file_.path(); }
  std::string describe() const override { return queue_->describe(); }
  const nvme::File& file() const { return file_; }

 private:
  nvme::File file_;
  Bytes bytes_;
  std::unique_ptr<nvme::IoQueue> queue_;  // last, so that it drains before the file closes
};

/// Folders on different drives as one, striped as the tier of a run is: by `speeds`, beside each
/// other.
///
/// Throws  as nvme::Store
std::unique_ptr<Target> make_striped_target(const std::vector<std::string>& folders,
                                            const std::vector<double>& speeds, Bytes bytes,
                                            nvme::Direct direct);

}  // namespace sluice::bench
