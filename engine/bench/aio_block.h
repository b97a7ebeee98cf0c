/// Puts what a sweep chose under `aio:` of a run file, and leaves every other byte as it is.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/bench/point.h"

namespace sluice::bench {

struct AioChoice {
  Point point;             ///< its engine, block and depth
  std::string provenance;  ///< "2026-11-22, /dev/nvme0n1 (MODEL), mixed 1.52 GB/s"
};

/// With the day, the device and the rate of what was chosen.
AioChoice aio_choice(const Context& context, const Summary& chosen);

/// A comment of where it is from and an `aio:` block, to paste.
std::string aio_lines(const AioChoice& choice);

/// "aio: {engine: io_uring, block_size: 2MiB, queue_depth: 64}".
std::string aio_line(const Point& point);

/// `text` with the choice: values of `engine`, `block_size` and `queue_depth`, and of `threads`
/// where they are the engine, are replaced, in a block or in braces, and missing ones added; the
/// comment stands above `aio:` and replaces that of an earlier time. Other keys, comments, order
/// and line ends stay.
///
/// The result is parsed again and must say the same as before but for these keys.
///
/// Throws  kConfig, with the lines to paste by hand, when that cannot be done safely: no YAML, tabs
///         in front of a line, two `aio`, anchors, aliases or tags on what would change, a file in
///         braces as a whole
std::string with_aio(std::string_view text, const AioChoice& choice,
                     const std::string& file = "run.yaml");

/// What became of a file; for a caller that shows the difference.
struct AioMerge {
  std::string before, after;
  bool changed() const { return before != after; }
};

/// Throws kConfig when write_aio() would refuse the file: before minutes are spent on measuring.
void require_aio_file(const std::filesystem::path& file);

/// with_aio() of a file, written as a whole or not at all. Throws kConfig, kIo.
AioMerge write_aio(const std::filesystem::path& file, const AioChoice& choice);

}  // namespace sluice::bench
