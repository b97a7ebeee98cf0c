#include "engine/tensor/allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/tensor/view.h"
#include "engine/tensor/workspace.h"

namespace sluice::tensor {
namespace {

using c10::DeviceIndex;
using c10::MempoolId_t;
namespace allocation = c10::cuda::CUDACachingAllocator;

void give_back(void* p) {
  Routes::give_back(p);
}

[[noreturn]] void refuse(const char* what) {
  throw Error(Errc::kLogic, fmt::format("LibTorch asked our device allocator for {}, which no op "
                                        "of a run needs: it is not there",
                                        what));
}

/// Nothing is cached and nothing has a stream: inside an op all of a workspace is one stream's, and
/// what lies outside is given back to the device at once, which waits for who still uses it.
class OurAllocator final : public allocation::CUDAAllocator {
 public:
  std::string name() override { return "sluice"; }
  void init(int) override {}
  bool initialized() override { return true; }
  void enable(bool value) override {
    if (!value) refuse("no caching");
  }
  bool isEnabled() const override { return true; }

  c10::DataPtr allocate(std::size_t n) override {
    void* p = raw_alloc(n);
    return {p, p, &give_back, device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void* raw_alloc(std::size_t n) override { return n > 0 ? Routes::take(n) : nullptr; }
  void* raw_alloc_with_stream(std::size_t, cudaStream_t) override { refuse("memory of a stream"); }
  void raw_delete(void* p) override {
    if (p != nullptr) give_back(p);
  }
  void emptyCache(MempoolId_t) override {}  // libraries ask before they try a smaller workspace

  /// Of every copy between contiguous tensors of one type.
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, std::size_t n,
                          cudaStream_t stream, bool) override {
    if (to_device != from_device) refuse("a copy between devices");
    return cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, stream);
  }

  void copy_data(void*, const void*, std::size_t) const override { refuse("a clone of memory"); }
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr&, c10::cuda::CUDAStream) override {
    refuse("a tensor on two streams");
  }
  void enablePeerAccess(DeviceIndex, DeviceIndex) override { refuse("access to a peer"); }

  double getMemoryFraction(DeviceIndex) override { refuse("a share of memory"); }
  void setMemoryFraction(double, DeviceIndex) override { refuse("a share of memory"); }
  std::vector<allocation::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override {
    refuse("segments");
  }
  void cacheInfo(DeviceIndex, std::size_t*) override { refuse("what it caches"); }
  void* getBaseAllocation(void*, std::size_t*) override { refuse("segments"); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex) override {
    refuse("statistics");
  }
  void resetAccumulatedStats(DeviceIndex) override { refuse("statistics"); }
  void resetPeakStats(DeviceIndex) override { refuse("statistics"); }
  allocation::SnapshotInfo snapshot(MempoolId_t, bool) override { refuse("a snapshot"); }
  void recordHistory(bool, allocation::CreateContextFn, std::size_t, allocation::RecordContext,
                     bool, const std::vector<std::string>&) override {
    refuse("a history");
  }
  void attachOutOfMemoryObserver(allocation::OutOfMemoryObserver) override {
    refuse("an observer");
  }
  void attachAllocatorTraceTracker(allocation::AllocatorTraceTracker) override {
    refuse("an observer");
  }

  void beginAllocateToPool(DeviceIndex, MempoolId_t, std::function<bool(cudaStream_t)>) override {
    refuse("a pool");
  }
  void endAllocateToPool(DeviceIndex, MempoolId_t) override { refuse("a pool"); }
  void releasePool(DeviceIndex, MempoolId_t) override { refuse("a pool"); }
  std::shared_ptr<allocation::AllocatorState> getCheckpointState(DeviceIndex,
                                                                 MempoolId_t) override {
    refuse("a pool");
  }
  allocation::CheckpointDelta setCheckpointPoolState(
      DeviceIndex, std::shared_ptr<allocation::AllocatorState>) override {
    refuse("a pool");
  }
  allocation::ShareableHandle shareIpcHandle(void*) override { refuse("a handle to share"); }
  std::shared_ptr<void> getIpcDevPtr(std::string) override { refuse("a handle to share"); }
};

}  // namespace

// CPU tensors - scalars, indices - are the default allocator's, which aligns to 64 bytes as well.
void install_allocator() {
  static OurAllocator* const ours = [] {
    auto* allocator = new OurAllocator;  // LibTorch may use it until the very end of the process
    allocation::allocator.store(allocator);
    constexpr std::uint8_t kAboveTheDefault = 1;
    c10::SetAllocator(c10::DeviceType::CUDA, allocator, kAboveTheDefault);
    return allocator;
  }();
  (void)ours;
}

}  // namespace sluice::tensor
