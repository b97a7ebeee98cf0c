/// How the program ends when something is wrong.
#pragma once

#include <exception>

namespace sluice::app {

/// Says on stderr (and in the run's log) what is wrong, and returns the process exit code. What is
/// no fault of the user's is called an internal error, with its place in the source if that is
/// known.
int report(const std::exception& error);

}  // namespace sluice::app
