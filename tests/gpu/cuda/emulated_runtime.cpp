#include "tests/gpu/cuda/emulated_runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

using sluice::Bytes;
using sluice::Nanos;
namespace emulated = sluice::gpu::emulated;

namespace {

constexpr Bytes kBegin = 256;  // memory begins on multiples of it, and of nothing more

/// What a thread of the host has asked for.
struct Caller {
  std::atomic<bool> enqueues{false};
  std::atomic<std::size_t> waits{0};  // for a stream or an event
  std::atomic<std::size_t> stalls{0};
};

struct State {
  emulated::Machine machine;
  std::atomic<cudaError_t> broken{cudaSuccess};
  std::atomic<Nanos> clock{-1};  // below 0: the real one
  std::mutex mutex;              // of what follows
  std::deque<Caller> callers;    // also those that have ended
  std::map<const void*, Bytes> memory;
  Bytes used = 0;
  std::map<const void*, Bytes> registered;
  Bytes untouched = 0;
};

State& state() {
  static auto* const all = new State;
  return *all;
}

Caller& caller() {
  thread_local Caller* const own = [] {
    const std::lock_guard lock(state().mutex);
    return &state().callers.emplace_back();
  }();
  return *own;
}

/// Whether the byte is in one of these pieces of memory.
bool within(const std::map<const void*, Bytes>& pieces, const void* byte) {
  const auto after = pieces.upper_bound(byte);
  if (after == pieces.begin()) return false;
  const auto& [begin, n] = *std::prev(after);
  return static_cast<const std::byte*>(byte) < static_cast<const std::byte*>(begin) + n;
}

bool device_knows(const void* byte) {
  const std::lock_guard lock(state().mutex);
  return within(state().memory, byte) || within(state().registered, byte);
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t answer(cudaError_t error) {
  if (state().broken != cudaSuccess) error = state().broken;
  if (error != cudaSuccess) last_error = error;
  return error;
}

/// Reached once, at a time of the device's clock.
struct Mark {
  bool is_reached() const {
    return time.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  std::promise<Nanos> reached;
  std::shared_future<Nanos> time = reached.get_future().share();
};

}  // namespace

struct CUevent_st {
  std::shared_ptr<Mark> mark;  // null until it is recorded
};

struct CUstream_st {
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
    }
    changed.notify_one();
    worker.join();
  }
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(work));
    }
    changed.notify_one();
  }
  void serve() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return closing || !queue.empty(); });
      if (queue.empty()) return;
      const auto work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool closing = false;
  std::thread worker{[this] { serve(); }};
};

namespace sluice::gpu::emulated {

On::On(const Machine& machine) {
  state().machine = machine;
}
On::~On() {
  state().machine = {};
  state().broken = cudaSuccess;
  state().clock = -1;
  last_error = cudaSuccess;
}

Bytes registered() {
  const std::lock_guard lock(state().mutex);
  Bytes sum = 0;
  for (const auto& [address, n] : state().registered) sum += n;
  return sum;
}

std::size_t host_waits() {
  const std::lock_guard lock(state().mutex);
  std::size_t sum = 0;
  for (const Caller& one : state().callers) {
    sum += one.stalls;
    if (one.enqueues) sum += one.waits;
  }
  return sum;
}

std::size_t allocations() {
  const std::lock_guard lock(state().mutex);
  return state().memory.size();
}

Bytes untouched() {
  const std::lock_guard lock(state().mutex);
  return state().untouched;
}

void launch(cudaStream_t stream, std::function<void()> kernel) {
  caller().enqueues = true;
  stream->push([kernel = std::move(kernel)] {
    if (state().broken == cudaSuccess) kernel();
  });
}

void refuse_launch(cudaError_t error) {
  last_error = error;
}

void break_device(cudaError_t error) {
  state().broken = error;
}

void set_clock(Nanos time) {
  state().clock = time;
}

}  // namespace sluice::gpu::emulated

cudaError_t cudaDriverGetVersion(int* version) {
  *version = state().machine.driver;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (state().machine.driver < CUDART_VERSION) return answer(cudaErrorInsufficientDriver);
  if (state().machine.devices == 0) return answer(cudaErrorNoDevice);
  *count = state().machine.devices;
  return answer(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strncpy(properties->name, "Emulated GPU", sizeof(properties->name) - 1);
  properties->major = state().machine.major;
  properties->minor = state().machine.minor;
  properties->totalGlobalMem = state().machine.memory;
  return answer(cudaSuccess);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  const std::lock_guard lock(state().mutex);
  *all = state().machine.memory;
  *free = *all - state().machine.of_others - state().used;
  return answer(cudaSuccess);
}

cudaError_t cudaMalloc(void** data, std::size_t n) {
  ++caller().stalls;
  std::size_t free = 0;
  std::size_t all = 0;
  cudaMemGetInfo(&free, &all);
  if (n > free) return answer(cudaErrorMemoryAllocation);
  const std::lock_guard lock(state().mutex);
  *data = nullptr;
  if (n == 0) return answer(cudaSuccess);
  const Bytes whole = sluice::round_up(kBegin + n, sluice::kAlignment);
  *data = static_cast<std::byte*>(std::aligned_alloc(sluice::kAlignment, whole)) + kBegin;
  state().memory[*data] = n;
  state().used += n;
  return answer(cudaSuccess);
}

cudaError_t cudaFree(void* data) {
  ++caller().stalls;
  const std::lock_guard lock(state().mutex);
  const auto found = state().memory.find(data);
  if (found == state().memory.end()) return answer(cudaErrorInvalidValue);
  state().used -= found->second;
  state().memory.erase(found);
  std::free(static_cast<std::byte*>(data) - kBegin);
  return answer(cudaSuccess);
}

cudaError_t cudaHostRegister(void* data, std::size_t n, unsigned) {
  ++caller().stalls;
  if (state().machine.registration != cudaSuccess) return answer(state().machine.registration);
  const std::lock_guard lock(state().mutex);
  state().registered[data] = n;
  std::vector<unsigned char> pages(sluice::div_ceil(n, sluice::kAlignment));
  mincore(data, n, pages.data());
  const auto made = std::ranges::count_if(pages, [](auto page) { return (page & 1) == 0; });
  state().untouched += static_cast<Bytes>(made) * sluice::kAlignment;
  return answer(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* data) {
  ++caller().stalls;
  const std::lock_guard lock(state().mutex);
  return answer(state().registered.erase(data) == 1 ? cudaSuccess
                                                    : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = answer(cudaSuccess); error != cudaSuccess) return error;
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return answer(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++caller().waits;
  const auto mark = std::make_shared<Mark>();
  stream->push([mark] { mark->reached.set_value(0); });
  mark->time.wait();
  return answer(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  caller().enqueues = true;
  if (event->mark) stream->push([mark = event->mark] { mark->time.wait(); });
  return answer(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t error = answer(cudaSuccess); error != cudaSuccess) return error;
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return answer(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  caller().enqueues = true;
  event->mark = std::make_shared<Mark>();
  stream->push([mark = event->mark] {
    const Nanos stopped = state().clock;
    mark->reached.set_value(stopped < 0 ? sluice::now_ns() : stopped);
  });
  return answer(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++caller().waits;
  if (event->mark) event->mark->time.wait();
  return answer(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  for (const cudaEvent_t event : {begin, end}) {
    if (!event->mark) return answer(cudaErrorInvalidResourceHandle);
    if (!event->mark->is_reached()) return answer(cudaErrorNotReady);
  }
  *ms = static_cast<float>(static_cast<double>(end->mark->time.get() - begin->mark->time.get()) *
                           1e-6);
  return answer(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t n, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (!device_knows(dst) || !device_knows(src)) ++caller().stalls;
  emulated::launch(stream, [=] { std::memcpy(dst, src, n); });
  return answer(cudaSuccess);
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, state().broken);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    default:
      return "cudaErrorOfAnotherKind";
  }
}

const char* cudaGetErrorString(cudaError_t) {
  return "as the runtime says it";
}
