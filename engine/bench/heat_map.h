/// A sweep as one page: for each traffic and engine a grid of block size and depth, coloured by
/// rate. It needs no network and no script, and follows the reader's light or dark theme.
#pragma once

#include <span>
#include <string>

#include "engine/bench/point.h"

namespace sluice::bench {

/// HTML. `chosen` are marked; the grids of one traffic share their scale. Whatever stands in the
/// context is shown as text, also what looks like HTML.
std::string heat_map(const Context& context, std::span<const Summary> summaries,
                     std::span<const Point> chosen);

}  // namespace sluice::bench
