/// Signals as wishes: Ctrl-C, SIGTERM and SIGHUP end the work in good order, a second one at once;
/// SIGUSR1 asks that it be saved, and goes on.
#pragma once

#include <atomic>
#include <string_view>

namespace sluice {

/// The number of the signal that came since watch_stop_signals(), 0 before.
const std::atomic<int>& stop_signal();

/// From now on the first of these signals only sets stop_signal() and says on stderr that `what`,
/// as "stopping after the steps that are under way", which must be there to the end. The next one
/// does what it does to any program. A signal that is ignored stays so.
void watch_stop_signals(std::string_view what);

/// From now on SIGUSR1 is noted, instead of ending the process.
void watch_save_signal();

/// Whether SIGUSR1 came since the last call.
bool take_save_signal();

}  // namespace sluice
