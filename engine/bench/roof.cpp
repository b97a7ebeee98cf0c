#include "engine/bench/roof.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sluice::bench {
namespace {

using cpu_adam::Stores;

using Words __attribute__((vector_size(16), may_alias)) = std::uint32_t;

const Words* words(std::span<const std::byte> bytes) {
  return reinterpret_cast<const Words*>(bytes.data());
}
Words* words(std::span<std::byte> bytes) {
  return reinterpret_cast<Words*>(bytes.data());
}

template <Stores stores>
void store(Words* to, Words value) {
#if defined(__SSE2__)
  if constexpr (stores == Stores::kStreaming) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(value));
    return;
  }
#endif
  *to = value;
}

/// What was streamed is there for other threads.
template <Stores stores>
void finish() {
#if defined(__SSE2__)
  if constexpr (stores == Stores::kStreaming) _mm_sfence();
#endif
}

constexpr std::size_t kLine = 64 / sizeof(Words);

/// A whole line of each array at a time: a store past the caches wants all of its line. `wide`:
/// words of state for each of the gradient.
template <Stores stores, std::size_t wide>
void update_line(Words* state, const Words* changes) {
  for (std::size_t k = 0; k < kLine * wide; ++k)
    store<stores>(state + k, state[k] ^ changes[k / wide]);
}

template <Stores stores, std::size_t wide>
void update(const UpdateBytes& bytes, std::uint32_t mark) {
  Words* const master = words(bytes.master);
  Words* const m = words(bytes.m);
  Words* const v = words(bytes.v);
  const Words* const gradient = words(bytes.gradient);
  Words* const published = words(bytes.published);
  const Words marks = {mark, mark, mark, mark};
  const std::size_t n = bytes.gradient.size() / sizeof(Words);
  for (std::size_t i = 0; i < n; i += kLine) {
    Words changes[kLine];
    for (std::size_t k = 0; k < kLine; ++k) changes[k] = gradient[i + k] & marks;
    update_line<stores, wide>(master + i * wide, changes);
    update_line<stores, wide>(m + i * wide, changes);
    update_line<stores, wide>(v + i * wide, changes);
    for (std::size_t k = 0; k < kLine; ++k)
      store<stores>(published + i + k, gradient[i + k] ^ marks);
  }
  finish<stores>();
}

template <Stores stores>
void update(const UpdateBytes& bytes, std::uint32_t mark) {
  if (bytes.gradient.size() == bytes.master.size()) return update<stores, 1>(bytes, mark);
  update<stores, 2>(bytes, mark);
}

template <Stores stores>
void copy(std::span<std::byte> to, std::span<const std::byte> from) {
  const std::size_t n = from.size() / sizeof(Words);
  for (std::size_t i = 0; i < n; ++i) store<stores>(words(to) + i, words(from)[i]);
  finish<stores>();
}

}  // namespace

void touch_update(Stores stores, const UpdateBytes& bytes, std::uint32_t mark) {
  if (stores == Stores::kStreaming) return update<Stores::kStreaming>(bytes, mark);
  update<Stores::kCached>(bytes, mark);
}

std::uint32_t touch_read(std::span<const std::byte> bytes) {
  constexpr std::size_t kAtATime = 4;
  Words all[kAtATime] = {};
  const std::size_t n = bytes.size() / sizeof(Words);
  for (std::size_t i = 0; i < n; i += kAtATime) {
    for (std::size_t k = 0; k < kAtATime; ++k) all[k] ^= words(bytes)[i + k];
  }
  const Words one = (all[0] ^ all[1]) ^ (all[2] ^ all[3]);
  return one[0] ^ one[1] ^ one[2] ^ one[3];
}

void touch_copy(Stores stores, std::span<std::byte> to, std::span<const std::byte> from) {
  if (stores == Stores::kStreaming) return copy<Stores::kStreaming>(to, from);
  copy<Stores::kCached>(to, from);
}

}  // namespace sluice::bench
