#include "engine/bench/adam_cases.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cpu_adam/optimizer.h"
#include "cpu_adam/workers.h"
#include "engine/bench/roof.h"
#include "gpu/memory.h"

namespace sluice::bench {
namespace {

using cpu_adam::Isa;
using cpu_adam::Optimizer;
using cpu_adam::Stores;

struct Size {
  std::string text;
  std::uint64_t parameters;
};

constexpr std::uint64_t kMillion = 1'000'000;
/// 0.8 GiB.
constexpr std::uint64_t kPastCaches = 30 * kMillion;

std::vector<Size> sizes_up_to(std::uint64_t most) {
  const std::vector<Size> usual = {{"1M", kMillion},         {"10M", 10 * kMillion},
                                   {"30M", kPastCaches},     {"100M", 100 * kMillion},
                                   {"300M", 300 * kMillion}, {"1B", 1000 * kMillion}};
  std::vector<Size> sizes;
  for (Size size : usual) {
    if (size.parameters > most) continue;
    size.parameters = round_down(size.parameters, kGrainElems);
    sizes.push_back(size);
  }
  if (sizes.empty()) {
    sizes.push_back({std::to_string(most), round_down(most, kGrainElems)});
  }
  return sizes;
}

/// The tenth step of a model whose gradient is the same everywhere.
constexpr float kGradient = 1e-3F;

cpu_adam::Hyper hyper() {
  return {.lr = 1e-4F,
          .weight_decay = 0.1F,
          .bias_correction1 = cpu_adam::bias_correction(0.9F, 10),
          .bias_correction2 = cpu_adam::bias_correction(0.999F, 10),
          .clip = 0.5F};
}

template <class T>
std::span<T> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// Parameters [begin, end) of `n`.
std::span<std::byte> cut(std::span<std::byte> all, std::uint64_t n, std::size_t begin,
                         std::size_t end) {
  const Bytes width = all.size() / n;
  return all.subspan(begin * width, (end - begin) * width);
}

/// The arrays lie one behind the other; a smaller model is the beginning of each.
struct Arrays {
  Arrays(std::uint64_t parameters, DType of_gradient)
      : type(of_gradient), slab(parameters * memory_per_parameter(type)), most(parameters) {
    std::ranges::fill(as<float>(master(most)), 0.5F);
    std::ranges::fill(m(most), std::byte{0});
    std::ranges::fill(v(most), std::byte{0});
    if (type == DType::kF32) {
      std::ranges::fill(as<float>(gradient(most)), kGradient);
    } else {
      std::ranges::fill(as<Bf16>(gradient(most)), to_bf16(kGradient));
    }
    std::ranges::fill(published(most), std::byte{0});
  }

  std::span<std::byte> at(Bytes before, std::uint64_t n, Bytes width) const {
    return {slab.data() + before * most, n * width};
  }
  std::span<std::byte> master(std::uint64_t n) const { return at(0, n, 4); }
  std::span<std::byte> m(std::uint64_t n) const { return at(4, n, 4); }
  std::span<std::byte> v(std::uint64_t n) const { return at(8, n, 4); }
  std::span<std::byte> gradient(std::uint64_t n) const { return at(12, n, size_of(type)); }
  std::span<std::byte> published(std::uint64_t n) const {
    return at(12 + size_of(type), n, size_of(type));
  }

  DType type;
  gpu::PinnedSlab slab;
  std::uint64_t most;
  std::vector<double> partials = std::vector<double>(div_ceil(most, kGrainElems));
  std::atomic<std::uint32_t> seen = 0;  // so that what is only read must be read
};

cpu_adam::Gradient gradient_of(const Arrays& arrays, std::uint64_t n) {
  if (arrays.type == DType::kF32) return std::span<const float>(as<float>(arrays.gradient(n)));
  return std::span<const Bf16>(as<Bf16>(arrays.gradient(n)));
}

cpu_adam::Published published_of(const Arrays& arrays, std::uint64_t n) {
  if (arrays.type == DType::kF32) return as<float>(arrays.published(n));
  return as<Bf16>(arrays.published(n));
}

/// The cases of one size.
class Cases {
 public:
  Cases(std::shared_ptr<Arrays> arrays, Size size, std::vector<MemoryCase>& to)
      : arrays_(std::move(arrays)), size_(std::move(size)), to_(to) {}

  void add(Isa isa, unsigned threads) {
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      const auto adam = std::make_shared<const Optimizer>(
          cpu_adam::Options{.threads = threads, .isa = isa, .stores = stores});
      if (adam->stores() != stores) continue;  // it has none of these
      const std::string by(cpu_adam::name_of(isa));
      to_.push_back({point("update", by, stores, threads), update(adam)});
      if (stores == Stores::kCached) {
        to_.push_back({point("norm", by, stores, threads), norm(adam)});
      }
    }
  }

  void add_roofs(unsigned threads) {
    const auto workers = std::make_shared<const cpu_adam::Workers>(threads);
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      to_.push_back({point("update", "loop", stores, threads, true), touch(workers, stores)});
    }
    to_.push_back({point("norm", "loop", Stores::kCached, threads, true), read(workers)});
  }

 private:
  MemoryPoint point(const std::string& work, const std::string& by, Stores stores, unsigned threads,
                    bool roof = false) const {
    const Bytes each = work == "norm" ? size_of(arrays_->type) : moved_per_parameter(arrays_->type);
    return {.work = work,
            .by = by,
            .stores = stores,
            .threads = threads,
            .size = size_.text,
            .parameters = size_.parameters,
            .moved = size_.parameters * each,
            .roof = roof};
  }

  std::function<void()> update(const std::shared_ptr<const Optimizer>& adam) const {
    return [arrays = arrays_, n = size_.parameters, adam] {
      adam->update(hyper(),
                   {as<float>(arrays->master(n)), as<float>(arrays->m(n)), as<float>(arrays->v(n))},
                   gradient_of(*arrays, n), published_of(*arrays, n));
    };
  }

  std::function<void()> norm(const std::shared_ptr<const Optimizer>& adam) const {
    return [arrays = arrays_, n = size_.parameters, adam] {
      adam->grain_norms(gradient_of(*arrays, n),
                        std::span(arrays->partials).first(div_ceil(n, kGrainElems)));
    };
  }

  /// Cut as the optimizer's work is.
  std::function<void()> touch(const std::shared_ptr<const cpu_adam::Workers>& workers,
                              Stores stores) const {
    return [arrays = arrays_, n = size_.parameters, workers, stores] {
      workers->for_grains(n, [&](std::size_t begin, std::size_t end) {
        const auto part = [&](std::span<std::byte> all) { return cut(all, n, begin, end); };
        touch_update(stores,
                     {part(arrays->master(n)), part(arrays->m(n)), part(arrays->v(n)),
                      part(arrays->gradient(n)), part(arrays->published(n))},
                     0);
      });
    };
  }

  std::function<void()> read(const std::shared_ptr<const cpu_adam::Workers>& workers) const {
    return [arrays = arrays_, n = size_.parameters, workers] {
      workers->for_grains(n, [&](std::size_t begin, std::size_t end) {
        arrays->seen ^= touch_read(cut(arrays->gradient(n), n, begin, end));
      });
    };
  }

  std::shared_ptr<Arrays> arrays_;
  Size size_;
  std::vector<MemoryCase>& to_;
};

}  // namespace

std::vector<MemoryCase> adam_cases(const AdamQuestion& question) {
  const std::vector<Size> sizes = sizes_up_to(question.most);
  const auto arrays = std::make_shared<Arrays>(sizes.back().parameters, question.type);
  std::uint64_t in_every_way = 0;
  for (const Size& size : sizes) {
    if (size.parameters <= kPastCaches) in_every_way = size.parameters;
  }
  std::vector<MemoryCase> all;
  for (const Size& size : sizes) {
    Cases cases(arrays, size, all);
    const bool every = size.parameters == in_every_way;
    for (const unsigned threads : question.threads) {
      if (!every && threads != question.threads.back()) continue;
      for (const Isa isa : question.isas) {
        if (every || isa == question.isas.front()) cases.add(isa, threads);
      }
      cases.add_roofs(threads);
    }
  }
  return all;
}

}  // namespace sluice::bench
