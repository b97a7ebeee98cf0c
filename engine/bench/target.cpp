#include "engine/bench/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "nvme/store.h"

namespace sluice::bench {

FolderTarget::FolderTarget(const std::string& folder, Bytes bytes, nvme::Direct direct)
    : file_(nvme::open_unnamed(folder, direct)), bytes_(bytes) {
  file_.preallocate(bytes);
}

void FolderTarget::use(const nvme::Options& options, const std::shared_ptr<nvme::KernelSeam>& seam,
                       const std::vector<std::span<std::byte>>& memory) {
  queue_.reset();
  queue_ = nvme::make_queue(options, file_.caching(), seam);
  queue_->enrol({{&file_}, memory});
}

Ticket FolderTarget::transfer(nvme::Op op, Bytes offset, std::span<std::byte> memory) {
  return queue_->submit({op, &file_, offset, memory.data(), memory.size()});
}

namespace {

/// Stands in a store's queue's place, so that the queue can be another for each point while the
/// store keeps its files.
class Exchangeable final : public nvme::IoQueue {
 public:
  explicit Exchangeable(std::unique_ptr<nvme::IoQueue> queue) : queue_(std::move(queue)) {}
  void exchange(std::unique_ptr<nvme::IoQueue> queue) { queue_ = std::move(queue); }

  using IoQueue::submit;
  Ticket submit(std::span<const nvme::Request> requests, std::shared_ptr<void> keep) override {
    return queue_->submit(requests, std::move(keep));
  }
  void enrol(const nvme::Enrolment& most) override { queue_->enrol(most); }
  void close() noexcept override { queue_->close(); }
  std::string describe() const override { return queue_->describe(); }

 private:
  std::unique_ptr<nvme::IoQueue> queue_;
};

class StripedTarget final : public Target {
 public:
  StripedTarget(const std::vector<std::string>& folders, const std::vector<double>& speeds,
                Bytes bytes, nvme::Direct direct)
      : name_(fmt::format("{} together", fmt::join(folders, " and "))),
        store_(folders, bytes, options_of(direct), nvme::AllowRam::kYes, speeds,
               [this](std::unique_ptr<nvme::IoQueue> queue) {
                 auto mine = std::make_unique<Exchangeable>(std::move(queue));
                 queues_.push_back(mine.get());
                 return mine;
               }),
        line_(store_.allocate(bytes)) {
    for (const std::string& folder : folders) {
      if (nvme::open_unnamed(folder, direct).caching() == nvme::Caching::kPageCache) {
        caching_ = nvme::Caching::kPageCache;
      }
    }
  }

  Bytes bytes() const override { return line_.bytes; }
  void use(const nvme::Options& options, const std::shared_ptr<nvme::KernelSeam>& seam,
           const std::vector<std::span<std::byte>>& memory) override {
    for (Exchangeable* queue : queues_) queue->exchange(nvme::make_queue(options, caching_, seam));
    store_.enrol(memory);
  }
  Ticket transfer(nvme::Op op, Bytes offset, std::span<std::byte> memory) override {
    return op == nvme::Op::kRead ? store_.read(line_, offset, memory)
                                 : store_.write(line_, offset, memory);
  }
  std::string name() const override { return name_; }
  std::string describe() const override { return store_.describe(); }

 private:
  static nvme::Options options_of(nvme::Direct direct) {
    nvme::Options options;
    options.engine = nvme::Engine::kThreads;  // until use(): it is there everywhere
    options.direct = direct;
    return options;
  }

  const std::string name_;
  nvme::Caching caching_ = nvme::Caching::kDirect;
  std::vector<Exchangeable*> queues_;
  nvme::Store store_;
  nvme::Extent line_;
};

}  // namespace

std::unique_ptr<Target> make_striped_target(const std::vector<std::string>& folders,
                                            const std::vector<double>& speeds, Bytes bytes,
                                            nvme::Direct direct) {
  return std::make_unique<StripedTarget>(folders, speeds, bytes, direct);
}

}  // namespace sluice::bench
