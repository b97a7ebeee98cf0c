#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/base/error.h"
#include "engine/shape/family.h"

namespace sluice::shape {
namespace {

// Far above any model, and low enough that products of two sizes, in bytes, fit 64 bits.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = std::int64_t{1} << 16;

/// The checks of one decoder, with the key names of its family for the messages.
class Checker {
 public:
  Checker(const Decoder& decoder, std::string_view where)
      : d_(decoder), family_(find_family(decoder.family, where)), where_(where) {}

  void sizes() const {
    for (const SizeKey& row : family_.sizes) {
      const std::int64_t value = d_.*row.field;
      const std::int64_t most = row.field == &Decoder::layers ? kMaxLayers : kMaxSize;
      if (value < 1 || value > most) {
        refuse(row.field, fmt::format("{} is out of range; choose 1 to {}", value, most));
      }
    }
  }

  void heads() const {
    const std::string head_key = key(&Decoder::heads);
    if (family_.heads_divide && d_.hidden % d_.heads != 0) {
      refuse(&Decoder::heads,
             fmt::format("{} does not divide {} = {}; choose a divisor, as {}", d_.heads,
                         key(&Decoder::hidden), d_.hidden, divisor_at_most(d_.hidden, d_.heads)));
    }
    if (d_.heads % d_.kv_heads != 0) {
      refuse(&Decoder::kv_heads,
             fmt::format("{} does not divide {} = {}; choose a divisor, as {}", d_.kv_heads,
                         head_key, d_.heads, divisor_at_most(d_.heads, d_.kv_heads)));
    }
    if (d_.head_dim > kMaxSize / d_.heads) {
      refuse(&Decoder::head_dim, fmt::format("{} times {} = {} is more than {}; lower one of them",
                                             d_.head_dim, head_key, d_.heads, kMaxSize));
    }
    if (d_.positions == Positions::kRotary && d_.head_dim % 2 != 0) {
      refuse(&Decoder::head_dim,
             fmt::format("{} is odd, and rotary positions turn pairs ({} = {}, {} = {}); choose "
                         "sizes that make it even",
                         d_.head_dim, key(&Decoder::hidden), d_.hidden, head_key, d_.heads));
    }
  }

  void reals() const {
    for (const RealKey& row : family_.reals) {
      const double most = row.field == &Decoder::norm_eps ? 1.0 : 100.0;
      real(row.key, d_.*row.field, 0.0, most);
    }
    if (d_.positions == Positions::kRotary) real("rope_theta", d_.rope.theta, 0.0, 1e12);
  }

 private:
  [[noreturn]] void refuse(std::int64_t Decoder::*field, const std::string& reason) const {
    throw Error(Errc::kConfig, fmt::format("{}.{}: {}", where_, key(field), reason));
  }

  void real(std::string_view name, double value, double above, double most) const {
    if (value > above && value <= most) return;  // false for NaN too
    throw Error(Errc::kConfig,
                fmt::format("{}.{}: {} is out of range; choose a number above {} and at most {}",
                            where_, name, value, above, most));
  }

  std::string key(std::int64_t Decoder::*field) const {
    for (const SizeKey& row : family_.sizes) {
      if (row.field == field && !row.key.empty()) return std::string(row.key);
    }
    return field == &Decoder::kv_heads ? "num_key_value_heads" : "head_dim";
  }

  static std::int64_t divisor_at_most(std::int64_t n, std::int64_t limit) {
    for (std::int64_t d = std::min(n, limit); d > 1; --d) {
      if (n % d == 0) return d;
    }
    return 1;
  }

  const Decoder& d_;
  const Family& family_;
  std::string_view where_;
};

}  // namespace

void check(const Decoder& decoder, std::string_view where) {
  const Checker checker(decoder, where);
  checker.sizes();
  checker.heads();
  checker.reals();
}

}  // namespace sluice::shape
