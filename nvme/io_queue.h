/// Bytes to files and back, many requests at a time: one contract, several engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ticket.h"
#include "engine/base/units.h"
#include "nvme/file.h"
#include "nvme/options.h"

namespace sluice::nvme {

enum class Op : std::uint8_t { kRead, kWrite };
const char* name_of(Op op);

/// One transfer between memory and a file. The file and the memory must live until the ticket is
/// done, also when it fails; `keep` can see to that.
struct Request {
  Op op = Op::kRead;
  const File* file = nullptr;
  Bytes offset = 0;
  std::byte* data = nullptr;  ///< a write only reads from it
  Bytes bytes = 0;
};

/// Throws kLogic when the request cannot be right: no file or memory, or under O_DIRECT an offset,
/// length or address that is no multiple of kAlignment.
void check(const Request& request);

/// Files and memory that most requests will name. Both must live as long as there are requests.
struct Enrolment {
  std::vector<const File*> files;
  std::vector<std::span<std::byte>> memory;
};

/// A queue of requests, for one drive. It cuts them into pieces of `block_size` and keeps at most
/// `queue_depth` pieces of reads and as many of writes in flight. The rest waits here, what has the
/// least left in front (transfer.h); submit() never waits for the drive.
///
/// A ticket is done without error only when every byte was transferred: short transfers are
/// continued, interrupted ones repeated, a read that meets the end of the file fails. It is done
/// with an error only when nothing of its request is in flight any more.
///
/// There is no order between tickets: wait for a write before reading what it wrote.
///
/// Thread  submit() from any thread; the tickets finish on the queue's own
/// Throws  kLogic from submit() (see check(), or the queue is closed); kIo from the ticket, with
///         errno, file, offset and length
class IoQueue {
 public:
  IoQueue() = default;
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;
  /// Like close().
  virtual ~IoQueue() = default;

  /// Several requests of one kind, one ticket: done when all of them are.
  virtual Ticket submit(std::span<const Request> requests, std::shared_ptr<void> keep) = 0;

  Ticket submit(const Request& request, std::shared_ptr<void> keep = nullptr) {
    return submit(std::span(&request, 1), std::move(keep));
  }

  /// Once, before the requests come: where the kernel can, it looks at these files and pins this
  /// memory now instead of at each transfer. Where it cannot, describe() says why, and nothing else
  /// changes.
  virtual void enrol(const Enrolment& /*most*/) {}

  /// Takes nothing more, and returns when everything taken is done. Again: does nothing.
  virtual void close() noexcept = 0;

  /// For people: "io_uring, 32 x 1.0 MiB in flight".
  virtual std::string describe() const = 0;

  /// Why kAuto came to it; empty where it is the first choice, or was asked for by name.
  const std::string& why() const { return why_; }
  void chosen_because(std::string why) { why_ = std::move(why); }

 private:
  std::string why_;
};

/// Stands between a queue and the kernel, so that a test can make the kernel misbehave exactly
/// where the real code has to cope.
///
/// Thread  called from every thread of the queue, several at a time
class KernelSeam {
 public:
  virtual ~KernelSeam() = default;
  /// How many bytes of this piece to ask of the kernel: 1 to piece.bytes.
  virtual Bytes ask(const Request& piece) = 0;
  /// For answer(): the transfer has not ended, and never will.
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
  /// What to tell the queue when the kernel said `result`: bytes, or a negative errno.
  virtual std::int64_t answer(const Request& piece, std::int64_t result) = 0;
};

/// The queue that `options.engine` asks for, for files opened like that. kAuto takes io_uring, else
/// libaio, else threads, and threads where transfers go through the page cache, which would make
/// the others wait for it; why() says so, and a warning where something can be allowed.
///
/// Throws  kConfig for options out of range; kEnv when the engine that was asked for is not allowed
std::unique_ptr<IoQueue> make_queue(const Options& options, Caching caching,
                                    std::shared_ptr<KernelSeam> seam = nullptr);

/// Why this machine does not let an engine work; empty: it does.
std::string why_unusable(Engine engine, Caching caching);

}  // namespace sluice::nvme
