/// Ctrl-C and SIGTERM as a wish: the first ends the run in good order, a second one at once.
#pragma once

#include <atomic>

namespace sluice::app {

/// The number of the signal that came since watch_stop_signals(), 0 before.
const std::atomic<int>& stop_signal();

/// From now on the first SIGINT or SIGTERM only sets stop_signal() and says so on stderr. The next
/// one does what it does to any program. A signal that is ignored stays so.
void watch_stop_signals();

}  // namespace sluice::app
