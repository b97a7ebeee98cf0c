/// The folder of a run. A new run never writes into an existing one; one that goes on has it to
/// itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/config.h"

namespace sluice::app {

/// The config with its name decided: as given, or (auto) the run file's stem ('_' for what a name
/// may not have), with the first counter that is free. Throws kConfig when a given name's folder
/// exists, or none can be made there.
config::Config choose_name(const config::Config& config, const std::string& file);

/// The same for who makes no run: the folder may exist, and there is no counter.
config::Config any_name(const config::Config& config, const std::string& file);

/// The runs of this name that there are already, of several (name: auto) the newest first: the
/// config with their names.
std::vector<config::Config> existing_runs(const config::Config& config, const std::string& file);

inline constexpr const char* kLockName = "lock";

/// Whoever has it is the only one that writes into the run's folder; it goes with its process.
class RunLock {
 public:
  /// nullopt: another process has it. Throws kConfig when the folder cannot be written to; kEnv
  /// where its file system has no locks.
  static std::optional<RunLock> take(const std::string& folder);
  RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RunLock& operator=(RunLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RunLock();

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  int fd_;
};

enum class Claim : std::uint8_t {
  kOurs,
  kTaken  ///< another run has made it since its name was chosen
};

/// Creates config.output_dir, of which only one of several runs is the maker. Throws kConfig when
/// it cannot.
Claim claim_run_folder(const config::Config& config);

/// Writes what is known at start, config.resolved.yaml and env.json, whole or not at all.
void describe_run(const config::Config& config, const std::string& machine);

}  // namespace sluice::app
