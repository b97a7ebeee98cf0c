/// Sizes in bytes, with units, in the source and in text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

using Bytes = std::uint64_t;

/// The grain: shards, norm partials and I/O extents all begin on a multiple of this many elements.
/// 8 KiB in bf16, 16 KiB in fp32, so O_DIRECT's alignment comes free.
inline constexpr std::uint64_t kGrainElems = 4096;

/// What a drive carries is summed in pieces of this many bytes: of whole ones every byte is
/// checked.
inline constexpr Bytes kSummed = 256 * 1024;

/// Every memory slot and disk extent begins on a multiple of this.
inline constexpr Bytes kAlignment = 4096;

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) {
  return n;
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return n << 10;
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return n << 20;
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return n << 30;
}
}  // namespace literals

constexpr std::uint64_t div_ceil(std::uint64_t n, std::uint64_t d) {
  return (n + d - 1) / d;
}
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) {
  return div_ceil(n, to) * to;
}
constexpr std::uint64_t round_down(std::uint64_t n, std::uint64_t to) {
  return n / to * to;
}

/// "4.0 GiB", "512 B": for people.
std::string format_bytes(Bytes n);

/// "512KiB": exact, in the largest unit that divides it, as run files have sizes.
std::string exact_size(Bytes n);

/// A number and what stands behind it.
struct Quantity {
  double number = 0;
  std::string_view unit;  ///< without spaces before it; a part of the text
};
/// nullopt: the text does not begin with a finite number.
std::optional<Quantity> quantity_in(std::string_view text);

/// Reads "64MiB", "1.5 GiB", "2GB" (K, M, G, T are binary with or without the i, as in fio and
/// DeepSpeed). Throws kConfig on a bare number (with the right spelling), an unknown unit, a
/// negative or a size that is no whole number of bytes.
Bytes parse_bytes(std::string_view text);

/// What drives endure being written, as their data sheets have it: "600TB", "1.2PB", in powers of
/// ten and whole GB. Throws kConfig.
Bytes parse_endurance(std::string_view text);
/// "600TB": exact, of what parse_endurance() gave.
std::string format_endurance(Bytes n);

}  // namespace sluice
