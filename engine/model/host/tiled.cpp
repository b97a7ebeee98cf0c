#include "engine/model/host/tiled.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "engine/base/error.h"
#include "engine/model/host/shared_out.h"
#include "engine/model/host/tiles.h"
#include "engine/model/one_by_one.h"
#include "engine/tensor/instructions.h"

namespace sluice::model {

using namespace rows;

namespace {

struct Sizes {
  Sizes(const Heads& h, std::int64_t window_or_0)
      : batch(h.q.size(0)),
        heads(h.q.size(1)),
        kv_heads(h.k.size(1)),
        seq(h.q.size(2)),
        width(h.q.size(3)),
        tiles((seq + kTile - 1) / kTile),
        window(window_or_0 > 0 ? window_or_0 : tiles * kTile),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(width)))) {
    SLUICE_CHECK(takes_width(width), kLogic, "attention in tiles cannot take heads of this width");
  }
  static bool takes_width(std::int64_t width) { return width % 2 == 0 && width <= kWidest; }

  std::int64_t of_tile() const { return kTile * width; }
  std::int64_t of_head() const { return tiles * of_tile(); }
  /// Heads of queries that share one of keys.
  std::int64_t group() const { return heads / kv_heads; }
  /// Tiles of keys that a tile of queries sees: from this one to its own.
  std::int64_t first_seen(std::int64_t queries) const {
    return std::max<std::int64_t>(0, queries * kTile - window + 1) / kTile;
  }

  std::int64_t batch, heads, kv_heads, seq, width, tiles, window;
  float scale;
};

/// Memory of a thread, cut into pieces; without any, only how much they take.
class Scratch {
 public:
  explicit Scratch(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t n) {
    constexpr std::int64_t kLine = 64;
    const std::int64_t begin = used_;
    used_ += (n * static_cast<std::int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + begin);
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::int64_t used_ = 0;
};

// Of a head: keys and values as tiles, one after the other; the rest of one tile of queries, but
// for their scores and weights, which are [keys, kTile].
struct AheadScratch {
  AheadScratch(Scratch& s, const Sizes& n)
      : keys(s.take<at::BFloat16>(n.of_head())),
        values_turned(s.take<at::BFloat16>(n.of_head())),
        query_pairs(s.take<at::BFloat16>(n.of_tile())),
        scores(s.take<float>(n.tiles * kTile * kTile)),
        weight_pairs(s.take<at::BFloat16>(n.tiles * kTile * kTile)),
        sums_turned(s.take<float>(n.of_tile())),
        max(s.take<float>(kTile)),
        sum(s.take<float>(kTile)) {}

  at::BFloat16 *keys, *values_turned, *query_pairs;
  float* scores;
  at::BFloat16* weight_pairs;
  float *sums_turned, *max, *sum;
};

// Of a head: keys and values as tiles, and their gradients; the rest of one tile of queries, and
// from `scores` on of one of keys, too.
struct BackScratch {
  BackScratch(Scratch& s, const Sizes& n)
      : keys(s.take<at::BFloat16>(n.of_head())),
        keys_turned(s.take<at::BFloat16>(n.of_head())),
        values(s.take<at::BFloat16>(n.of_head())),
        dkeys(s.take<float>(n.of_head())),
        dvalues(s.take<float>(n.of_head())),
        query_columns(s.take<at::BFloat16>(n.of_tile())),
        query_rows(s.take<at::BFloat16>(n.of_tile())),
        dout_columns(s.take<at::BFloat16>(n.of_tile())),
        dout_rows(s.take<at::BFloat16>(n.of_tile())),
        logsumexp(s.take<float>(kTile)),
        dots(s.take<float>(kTile)),
        dqueries_turned(s.take<float>(n.of_tile())),
        scores(s.take<float>(kTile * kTile)),
        dweights(s.take<float>(kTile * kTile)),
        weights(s.take<at::BFloat16>(kTile * kTile)),
        dscores(s.take<at::BFloat16>(kTile * kTile)),
        dscore_pairs(s.take<at::BFloat16>(kTile * kTile)) {}

  at::BFloat16 *keys, *keys_turned, *values;
  float *dkeys, *dvalues;
  at::BFloat16 *query_columns, *query_rows, *dout_columns, *dout_rows;
  float *logsumexp, *dots, *dqueries_turned, *scores, *dweights;
  at::BFloat16 *weights, *dscores, *dscore_pairs;
};

template <class Pieces>
at::Tensor for_threads(const Sizes& n, const at::Tensor& like) {
  Scratch all(nullptr);
  const Pieces measured(all, n);
  return at::empty({at::get_num_threads(), all.used()}, like.options().dtype(at::kByte));
}
template <class Pieces>
Pieces of_this_thread(const at::Tensor& memory, const Sizes& n) {
  Scratch mine(out<std::byte>(memory) + at::get_thread_num() * memory.stride(0));
  return Pieces(mine, n);
}

Bf16* bits(at::BFloat16* t) {
  return reinterpret_cast<Bf16*>(t);
}
const Bf16* bits(const at::BFloat16* t) {
  return reinterpret_cast<const Bf16*>(t);
}

/// to [m, n] = a [m, k] times b [k, n], which comes in pairs.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const at::BFloat16* a,
              const at::BFloat16* b, float* to) {
  at::native::cpublas::brgemm(m, n, k, k, n, n, /*add_C=*/false, a, b, to);
}
void multiply_add(std::int64_t m, std::int64_t n, std::int64_t k, const at::BFloat16* a,
                  const at::BFloat16* b, float* to) {
  at::native::cpublas::brgemm(m, n, k, k, n, n, /*add_C=*/true, a, b, to);
}

/// A head of a sequence, [seq, width].
struct Head {
  std::int64_t sequence, head;

  std::int64_t offset(const at::Tensor& t, std::int64_t token) const {
    return sequence * t.stride(0) + head * t.stride(1) + token * t.stride(2);
  }
  HeadRows tile(const at::Tensor& t, std::int64_t i) const {
    SLUICE_CHECK(t.stride(3) == 1, kLogic, "attention in tiles needs values side by side");
    const std::int64_t n = std::min(kTile, t.size(2) - i * kTile);
    return {in<at::BFloat16>(t) + offset(t, i * kTile), t.stride(2), n, t.size(3)};
  }
  RoundArgs rounded(const at::Tensor& t, std::int64_t i, const float* sums) const {
    const std::int64_t n = std::min(kTile, t.size(2) - i * kTile);
    return {sums, n, t.size(3), bits(out<at::BFloat16>(t) + offset(t, i * kTile)), t.stride(2)};
  }
};

void take_keys(const Sizes& n, const Heads& heads, Head head, const AheadScratch& s) {
  for (std::int64_t i = 0; i < n.tiles; ++i) {
    copy_tile(head.tile(heads.k, i), s.keys + i * n.of_tile());
    turn_tile(head.tile(heads.v, i), s.values_turned + i * n.of_tile());
  }
}

/// One tile of queries.
void look_at(const Sizes& n, const Heads& heads, const Looked& looked, Head head, std::int64_t tile,
             const AheadScratch& s) {
  const std::int64_t first = n.first_seen(tile), seen = tile + 1 - first;
  pair_columns(head.tile(heads.q, tile), s.query_pairs);
  for (std::int64_t i = 0; i < seen; ++i) {
    multiply(kTile, kTile, n.width, s.keys + (first + i) * n.of_tile(), s.query_pairs,
             s.scores + i * kTile * kTile);
  }
  kernels().weigh({s.scores, tile * kTile, first * kTile, seen * kTile, n.window, n.scale},
                  bits(s.weight_pairs), s.max, s.sum);
  std::fill_n(s.sums_turned, n.of_tile(), 0.0F);
  for (std::int64_t i = 0; i < seen; ++i) {
    multiply_add(n.width, kTile, kTile, s.values_turned + (first + i) * n.of_tile(),
                 s.weight_pairs + i * kTile * kTile, s.sums_turned);
  }
  const RoundArgs args = head.rounded(looked.out, tile, s.sums_turned);
  for (std::int64_t i = 0; i < args.n; ++i) {
    out<float>(looked.logsumexp)[head.offset(looked.logsumexp, tile * kTile + i)] =
        s.max[i] + std::log(s.sum[i]);
    s.sum[i] = 1 / s.sum[i];
  }
  kernels().round_columns(args, s.sum);
}

void take_keys(const Sizes& n, const Heads& heads, Head head, const BackScratch& s) {
  for (std::int64_t i = 0; i < n.tiles; ++i) {
    const HeadRows keys = head.tile(heads.k, i);
    copy_tile(keys, s.keys + i * n.of_tile());
    turn_tile(keys, s.keys_turned + i * n.of_tile());
    copy_tile(head.tile(heads.v, i), s.values + i * n.of_tile());
  }
  std::fill_n(s.dkeys, n.of_head(), 0.0F);
  std::fill_n(s.dvalues, n.of_head(), 0.0F);
}

void take_queries(const Heads& heads, const Looked& looked, const at::Tensor& dout, Head head,
                  std::int64_t tile, const BackScratch& s) {
  const HeadRows q = head.tile(heads.q, tile), dy = head.tile(dout, tile);
  pair_columns(q, s.query_columns);
  pair_rows(q, s.query_rows);
  pair_columns(dy, s.dout_columns);
  pair_rows(dy, s.dout_rows);
  std::fill_n(s.logsumexp, kTile, 0.0F);
  std::fill_n(s.dots, kTile, 0.0F);
  const HeadRows y = head.tile(looked.out, tile);
  kernels().dot_rows(bits(y.at), y.step, bits(dy.at), dy.step, y.n, y.width, s.dots);
  for (std::int64_t i = 0; i < y.n; ++i) {
    s.logsumexp[i] = in<float>(looked.logsumexp)[head.offset(looked.logsumexp, tile * kTile + i)];
  }
}

/// One tile of queries and one of keys.
void look_back(const Sizes& n, std::int64_t queries, std::int64_t keys, const BackScratch& s) {
  const std::int64_t first = keys * n.of_tile();
  multiply(kTile, kTile, n.width, s.keys + first, s.query_columns, s.scores);
  multiply(kTile, kTile, n.width, s.values + first, s.dout_columns, s.dweights);
  kernels().weigh_backward({{s.scores, queries * kTile, keys * kTile, kTile, n.window, n.scale},
                            s.dweights,
                            s.logsumexp,
                            s.dots,
                            bits(s.weights),
                            bits(s.dscores),
                            bits(s.dscore_pairs)});
  multiply_add(kTile, n.width, kTile, s.weights, s.dout_rows, s.dvalues + first);
  multiply_add(kTile, n.width, kTile, s.dscores, s.query_rows, s.dkeys + first);
  multiply_add(n.width, kTile, kTile, s.keys_turned + first, s.dscore_pairs, s.dqueries_turned);
}

/// The heads of queries that share one of keys.
void look_back(const Sizes& n, const Heads& heads, const Looked& looked, const at::Tensor& dout,
               const Heads& d, Head keys, const BackScratch& s) {
  std::array<float, kTile> scales{};
  scales.fill(n.scale);
  take_keys(n, heads, keys, s);
  for (std::int64_t i = 0; i < n.group() * n.tiles; ++i) {
    const Head queries{keys.sequence, keys.head * n.group() + i / n.tiles};
    const std::int64_t tile = i % n.tiles;
    take_queries(heads, looked, dout, queries, tile, s);
    std::fill_n(s.dqueries_turned, n.of_tile(), 0.0F);
    for (std::int64_t k = n.first_seen(tile); k <= tile; ++k) look_back(n, tile, k, s);
    kernels().round_columns(queries.rounded(d.q, tile, s.dqueries_turned), scales.data());
  }
  for (std::int64_t i = 0; i < n.tiles; ++i) {
    kernels().round_rows(keys.rounded(d.k, i, s.dkeys + i * n.of_tile()), n.scale);
    kernels().round_rows(keys.rounded(d.v, i, s.dvalues + i * n.of_tile()), 1);
  }
}

}  // namespace

bool is_tiled(const Heads& heads) {
  static const bool pays = tensor::only_onednn_multiplies_bf16(tensor::code_paths());
  return pays && heads.q.is_cpu() && heads.q.scalar_type() == at::kBFloat16 &&
         Sizes::takes_width(heads.q.size(3)) &&
         heads.q.size(0) * heads.k.size(1) >= at::get_num_threads();
}

Looked tiled_look(const Heads& heads, std::int64_t window) {
  const Sizes n(heads, window);
  const Looked looked{
      token_by_token(heads.q),
      at::empty({n.batch, n.seq, n.heads}, heads.q.options().dtype(at::kFloat)).transpose(1, 2)};
  const at::Tensor memory = for_threads<AheadScratch>(n, heads.q);
  share_out(n.batch * n.heads * n.tiles, kCostOfExp * kTile * n.seq, [&](Range some) {
    const auto mine = of_this_thread<AheadScratch>(memory, n);
    for (std::int64_t i = some.begin; i < some.end; ++i) {
      const std::int64_t head = i / n.tiles, tile = i % n.tiles;
      const Head queries{head / n.heads, head % n.heads};
      const Head keys{queries.sequence, queries.head / n.group()};
      const bool are_others = i % (n.group() * n.tiles) == 0;
      if (i == some.begin || are_others) take_keys(n, heads, keys, mine);
      look_at(n, heads, looked, queries, tile, mine);
    }
    at::native::cpublas::brgemm_release();
  });
  return looked;
}

Heads tiled_look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                          std::int64_t window) {
  const Sizes n(heads, window);
  const Heads d{token_by_token(heads.q), token_by_token(heads.k), token_by_token(heads.v)};
  const at::Tensor memory = for_threads<BackScratch>(n, heads.q);
  share_out(n.batch * n.kv_heads, kCostOfExp * n.seq * n.seq, [&](Range some) {
    const auto mine = of_this_thread<BackScratch>(memory, n);
    for (std::int64_t i = some.begin; i < some.end; ++i) {
      look_back(n, heads, looked, dout, d, {i / n.kv_heads, i % n.kv_heads}, mine);
    }
    at::native::cpublas::brgemm_release();
  });
  return d;
}

}  // namespace sluice::model
