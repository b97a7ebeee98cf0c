/// How a program ends: what is wrong, on stderr, and its exit code.
#pragma once

#include <exception>
#include <string_view>

#include "engine/base/error.h"

namespace sluice {

/// Says on stderr (and in a run's log) what is wrong, and returns the process exit code. What is no
/// fault of the user's is called an internal error, with its place in the source if that is known.
/// `no_memory`: what to change when the machine has none left.
int report(const std::exception& error, std::string_view no_memory);

/// Ends the process here, with the exit code of an error that was told: nothing is unwound or
/// joined.
[[noreturn]] void end_process(const Error& error) noexcept;

/// Hands over the last of what was printed: only then is a full disk seen. Throws kIo.
void require_printed();

}  // namespace sluice
