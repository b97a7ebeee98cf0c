/// The nvme tier: ranges of bytes on one or more folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ticket.h"
#include "engine/base/units.h"
#include "nvme/file.h"
#include "nvme/io_queue.h"
#include "nvme/options.h"
#include "nvme/placement.h"
#include "nvme/sums.h"

namespace sluice::nvme {

enum class AllowRam : std::uint8_t {
  kNo,
  kYes  ///< folders in memory are taken, with a warning: for tests
};

/// Whether a store of `capacity` bytes can be made here, by looking only: nothing is made or
/// written, and the folders need not exist yet. Returns what each folder would hold of it, were all
/// equally fast.
///
/// Throws  kConfig for no path, one that is no folder or not writable, or is memory; kBudget with
///         need and free when it does not fit, or when `ulimit -f` forbids a file so large
std::vector<Bytes> check_folders(const std::vector<std::string>& paths, Bytes capacity,
                                 AllowRam allow_ram);

/// A new file without a name in a folder that exists. Whether O_DIRECT works there is tried, not
/// believed; kAuto goes through the page cache where it does not.
///
/// Throws  kEnv when `direct` is kTrue and O_DIRECT does not work; kIo
File open_unnamed(const std::string& folder, Direct direct);

/// What stands in a queue's place, given that queue: for tests.
using WrapQueue = std::function<std::unique_ptr<IoQueue>(std::unique_ptr<IoQueue>)>;

/// Bytes on drives, striped over them (placement.h). Each folder holds one file, whose space is
/// reserved and whose name is removed before the constructor returns: whatever ends the process
/// then, nothing is left behind. Each drive has a queue of its own.
///
/// Owns    its files and its queues; the destructor waits for what is in flight
/// Thread  allocate() one at a time, before the run; read() and write() from any thread
/// Throws  kLogic for a range outside the extent, memory not aligned to kAlignment, and under
///         O_DIRECT an offset or length that is no multiple of it; kIo from the ticket
class Store {
 public:
  /// Does check_folders() before it makes or writes anything. `speeds`: of the paths, beside each
  /// other; empty: all alike.
  ///
  /// Throws  as check_folders() and make_queue(); kEnv when `options.direct` is kTrue and does not
  ///         work
  Store(const std::vector<std::string>& paths, Bytes capacity, const Options& options,
        AllowRam allow_ram, const std::vector<double>& speeds = {}, const WrapQueue& wrap = {});
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// `n` rounded up to kAlignment. Never given back. Throws  kBudget when the store is full
  Extent allocate(Bytes n);
  /// Bytes not allocated yet.
  Bytes free() const { return stripes_.bytes() - used_; }

  /// Memory that most transfers will use: see IoQueue::enrol().
  void enrol(const std::vector<std::span<std::byte>>& memory);

  /// The memory must live until the ticket is done; `keep` is held until then and can own it. With
  /// `verify` a write is summed before this returns, and who waits for a read first checks it, so
  /// the store must still be there: the ticket fails with kIo, naming file and offset, where a unit
  /// (sums.h) is not what was written.
  Ticket read(const Extent& extent, Bytes offset, std::span<std::byte> dst,
              const std::shared_ptr<void>& keep = nullptr);
  Ticket write(const Extent& extent, Bytes offset, std::span<const std::byte> src,
               const std::shared_ptr<void>& keep = nullptr);

  /// For people, one line: the engine, and per folder the filesystem, O_DIRECT or not, and size.
  std::string describe() const;

  /// For people: where an extent or a part of one lies, as "FILE: 262144 bytes at offset 0", and so
  /// on for each file that has some of it.
  std::string where(const Extent& range) const;

 private:
  struct Folder {
    std::string path;
    std::string filesystem;
    std::uint64_t device;
    Bytes capacity;
    File file;
    std::size_t drive = 0;  ///< index of its queue
  };
  static std::vector<Folder> open_folders(const std::vector<std::string>& paths, Bytes capacity,
                                          Direct direct, AllowRam allow_ram,
                                          const std::vector<double>& speeds);
  static Stripes stripes_of(const std::vector<Folder>& folders);
  void make_queues(const Options& options, const WrapQueue& wrap);
  Ticket transfer(Op op, const Extent& extent, Bytes offset, std::span<std::byte> memory,
                  const std::shared_ptr<void>& keep);
  void check_sums(Bytes begin, std::span<const std::byte> read) const;

  std::vector<Folder> folders_;
  Stripes stripes_;
  Bytes used_ = 0;
  std::optional<Sums> sums_;                      ///< where options.verify says so
  std::vector<std::unique_ptr<IoQueue>> queues_;  // last, so that they drain before the files close
};

}  // namespace sluice::nvme
