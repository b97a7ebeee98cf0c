#include "engine/bench/copy_cases.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cpu_adam/workers.h"
#include "engine/bench/roof.h"
#include "engine/bench/table.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"

namespace sluice::bench {
namespace {

using cpu_adam::Stores;

/// A buffer on each side of each lane.
struct Lanes {
  explicit Lanes(Bytes n)
      : heap(2 * round_up(n, kAlignment)),
        up(n),
        down(n),
        above(heap.allocate(n)),
        below(heap.allocate(n)) {
    std::fill_n(up.data(), n, std::byte{1});
    std::fill_n(down.data(), n, std::byte{1});
    // What was never written has no memory of its own, and is read at the speed of a cache.
    h2d.copy(below.data(), up.data(), n).ticket().wait();
  }

  Ticket copy_up(Bytes n) { return h2d.copy(above.data(), up.data(), n).ticket(); }
  Ticket copy_down(Bytes n) { return d2h.copy(down.data(), below.data(), n).ticket(); }

  gpu::DeviceHeap heap;
  gpu::PinnedSlab up, down;
  gpu::DeviceBlock above, below;
  gpu::Stream h2d{"h2d"}, d2h{"d2h"};
};

MemoryPoint point(const std::string& by, unsigned threads, Bytes n) {
  return {.work = "copy",
          .by = by,
          .threads = threads,
          .size = exact_size(n),
          .moved = (gpu::device().unified ? 2 : 1) * n * threads};
}

void add_lanes(const std::shared_ptr<Lanes>& lanes, Bytes n, std::vector<MemoryCase>& to) {
  to.push_back({point("h2d", 1, n), [=] { lanes->copy_up(n).wait(); }});
  to.push_back({point("d2h", 1, n), [=] { lanes->copy_down(n).wait(); }});
  to.push_back({point("both", 2, n), [=] {
                  const Ticket up = lanes->copy_up(n);
                  lanes->copy_down(n).wait();
                  up.wait();
                }});
}

/// One thread copies what one lane does; two together what both do.
void add_roofs(const std::shared_ptr<Lanes>& lanes, Bytes n, std::vector<MemoryCase>& to) {
  for (const unsigned threads : {1U, 2U}) {
    const auto workers = std::make_shared<const cpu_adam::Workers>(threads);
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      MemoryPoint loop = point("loop", threads, n);
      loop.stores = stores;
      loop.roof = true;
      to.push_back({loop, [=] {
                      workers->for_grains(n, [&](std::size_t begin, std::size_t end) {
                        const std::size_t size = end - begin;
                        touch_copy(stores, {lanes->above.data() + begin, size},
                                   {lanes->up.data() + begin, size});
                        if (threads == 1) return;
                        touch_copy(stores, {lanes->down.data() + begin, size},
                                   {lanes->below.data() + begin, size});
                      });
                    }});
    }
  }
}

}  // namespace

std::vector<MemoryCase> copy_cases(Bytes most) {
  const auto lanes = std::make_shared<Lanes>(most);
  std::vector<MemoryCase> cases;
  for (const Bytes n : {1_MiB, 32_MiB, 512_MiB}) {
    if (n > most) continue;
    add_lanes(lanes, n, cases);
    if (gpu::device().unified) add_roofs(lanes, n, cases);
  }
  return cases;
}

}  // namespace sluice::bench
