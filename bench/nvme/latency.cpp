/// How long a run waits for one parameter tensor from the nvme tier: reads of one size, one at a
/// time, beside the same while the write lane is saturated with requests of 32 MiB.
///
///   latency SECONDS io_uring|libaio|threads FOLDER...
///
/// SECONDS: of each size, in each of the two ways, spread over several turns.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/nvme/tier.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "nvme/aligned.h"
#include "nvme/store.h"

namespace sluice {
namespace {

constexpr Bytes kRequest = 32_MiB;
constexpr std::size_t kRequests = 16;  // written over and over: 512 MiB
constexpr std::size_t kAtATime = 4;
constexpr Bytes kRead = 512_MiB;  // that reads choose from
constexpr int kTurns = 3;
constexpr double kSettle = 0.3;  // seconds, until the write lane is full

/// Keeps the write lane busy while it lives.
class Writer {
 public:
  Writer(nvme::Store& store, const std::vector<nvme::Extent>& extents, std::span<std::byte> memory)
      : thread_([&store, &extents, memory, this] {
          std::deque<Ticket> in_flight;
          for (std::size_t n = 0; !over_; ++n) {
            if (in_flight.size() == kAtATime) {
              in_flight.front().wait();
              in_flight.pop_front();
            }
            in_flight.push_back(store.write(extents[n % kRequests], 0,
                                            memory.subspan(n % kAtATime * kRequest, kRequest)));
          }
          for (const Ticket& ticket : in_flight) ticket.wait();
        }) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kSettle));
  }
  ~Writer() { over_ = true; }

 private:
  std::atomic<bool> over_ = false;
  std::jthread thread_;  // last: it uses what stands above
};

/// Seconds of single reads of `n` bytes, one at least, for so many seconds.
void read(nvme::Store& store, const nvme::Extent& from, std::span<std::byte> memory, double seconds,
          std::mt19937_64& random, std::vector<double>& took) {
  const Bytes n = memory.size();
  std::uniform_int_distribution<Bytes> place(0, kRead / n - 1);
  const Nanos begin = now_ns();
  do {
    const Nanos asked = now_ns();
    store.read(from, place(random) * n, memory).wait();
    took.push_back(to_seconds(now_ns() - asked));
  } while (to_seconds(now_ns() - begin) < seconds);
}

double quantile(std::vector<double>& values, double part) {
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

void print_row(Bytes n, std::vector<double>& alone, std::vector<double>& beside) {
  fmt::print("{:>9} {:>9.0f} {:>9.0f} {:>9.0f} {:>9.0f} {:>7} {:>7}\n", format_bytes(n),
             1e6 * quantile(alone, 0.5), 1e6 * quantile(alone, 0.99), 1e6 * quantile(beside, 0.5),
             1e6 * quantile(beside, 0.99), alone.size(), beside.size());
}

void run(double seconds, nvme::Engine engine, const std::vector<std::string>& folders) {
  nvme::Options options;
  options.engine = engine;
  nvme::Store store(folders, kRead + kRequests * kRequest, options, nvme::AllowRam::kYes,
                    speeds_of(folders, options));
  const nvme::AlignedBytes memory = nvme::allocate_aligned((kAtATime + 1) * kRequest);
  const std::span<std::byte> written{memory.get(), kAtATime * kRequest};
  const std::span<std::byte> read_into{memory.get() + kAtATime * kRequest, kRequest};
  std::memset(written.data(), 1, written.size());
  store.enrol({written, read_into});

  const nvme::Extent from = store.allocate(kRead);
  std::vector<nvme::Extent> to;
  for (std::size_t i = 0; i < kRequests; ++i) to.push_back(store.allocate(kRequest));
  // Space that was only reserved is paid for at the first write.
  for (Bytes at = 0; at < kRead; at += kRequest) {
    store.write(from, at, written.first(kRequest)).wait();
  }
  for (const nvme::Extent& extent : to) store.write(extent, 0, written.first(kRequest)).wait();

  fmt::print("{}\n{:>9} {:>19} {:>19} {:>15}\n{:>9} {:>9} {:>9} {:>9} {:>9}\n", store.describe(),
             "one read", "alone, us", "beside writes, us", "reads", "", "p50", "p99", "p50", "p99");
  std::mt19937_64 random(1);
  for (const Bytes n : {4_KiB, 16_KiB, 64_KiB, 256_KiB, 1_MiB, 4_MiB, 16_MiB}) {
    std::vector<double> alone, beside;
    for (int turn = 0; turn < kTurns; ++turn) {
      read(store, from, read_into.first(n), seconds / kTurns, random, alone);
      const Writer writer(store, to, written);
      read(store, from, read_into.first(n), seconds / kTurns, random, beside);
    }
    print_row(n, alone, beside);
  }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;
  const auto engine = argc > 2 ? engine_named(argv[2]) : std::nullopt;
  const auto seconds = argc > 1 ? seconds_named(argv[1]) : std::nullopt;
  if (argc < 4 || !seconds || !engine) {
    fmt::print(stderr, "usage: latency SECONDS io_uring|libaio|threads FOLDER...\n");
    return 2;
  }
  try {
    run(*seconds, *engine, {argv + 3, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
