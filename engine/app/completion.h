/// `sluice completion bash|zsh`: what completes its command line in a shell, from the same verbs
/// and the same keys that it reads.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace sluice::app {

enum class Shell : std::uint8_t { kBash, kZsh };

/// A script for `source`. It completes `sluice` and `./sluice`.
std::string completion(const CLI::App& app, Shell shell);

}  // namespace sluice::app
