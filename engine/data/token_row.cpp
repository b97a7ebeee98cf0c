#include "engine/data/token_row.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/data/descriptor.h"

namespace sluice::data {
namespace {

void read_mask(const std::string& path, std::int64_t from, std::span<std::uint8_t> counts) {
  if (path.empty()) {
    std::ranges::fill(counts, std::uint8_t{1});
    return;
  }
  Descriptor(path, O_RDONLY).read(static_cast<std::uint64_t>(from), std::as_writable_bytes(counts));
  const auto bad = std::ranges::find_if(counts, [](std::uint8_t byte) { return byte > 1; });
  SLUICE_CHECK(
      bad == counts.end(), kFormat,
      fmt::format("{}: byte {} is {}, a mask has 0 and 1; run `sluice data tokenize` again", path,
                  from + (bad - counts.begin()), *bad));
}

}  // namespace

void TokenRow::add(TokenFile ids, std::string mask) {
  const std::int64_t tokens = ids.tokens();
  if (tokens == 0) return;
  files_.push_back({std::move(ids), std::move(mask), tokens_});
  tokens_ += tokens;
}

template <class T, class Read>
void TokenRow::across_files(std::int64_t from, std::span<T> values, Read read) const {
  auto file = std::ranges::upper_bound(files_, from, {}, &File::first) - 1;
  for (; !values.empty(); ++file) {
    const std::int64_t begin = from - file->first;
    const auto n =
        static_cast<std::size_t>(std::min(std::ssize(values), file->ids.tokens() - begin));
    read(*file, begin, values.first(n));
    values = values.subspan(n);
    from += static_cast<std::int64_t>(n);
  }
}

void TokenRow::read(std::int64_t from, std::span<std::int64_t> tokens) const {
  across_files(from, tokens,
               [](const File& file, std::int64_t begin, auto into) { file.ids.read(begin, into); });
}

void TokenRow::read_counts(std::int64_t from, std::span<std::uint8_t> counts) const {
  across_files(from, counts, [](const File& file, std::int64_t begin, auto into) {
    read_mask(file.mask, begin, into);
  });
}

}  // namespace sluice::data
