/// What the benches of a run file share: their arguments, and a folder of their own.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/app/environment.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/tensor/process.h"

namespace sluice {

/// A folder beside the runs, gone afterwards.
class Scratch {
 public:
  explicit Scratch(std::string path) : path_(std::move(path)) {
    SLUICE_CHECK(
        std::filesystem::create_directories(path_), kConfig,
        fmt::format("{} exists: another bench runs here, or was killed; remove it", path_));
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// An argument that says how many.
inline int count_of(const std::string& argument) {
  int count = 0;
  const char* const end = argument.data() + argument.size();
  const auto [stopped, error] = std::from_chars(argument.data(), end, count);
  SLUICE_CHECK(error == std::errc{} && stopped == end && count > 0, kConfig,
               fmt::format("'{}' is no number of 1 or more", argument));
  return count;
}

/// `bench` in a process that is made for it; the exit code.
template <class Bench>
int run_bench(Bench bench) {
  tensor::require_process_environment();
  app::prepare_process();
  try {
    bench();
    return 0;
  } catch (const Error& e) {
    log::error(e.what());
    return exit_code(e.code);
  }
}

/// `bench FIRST [MORE ...]`, with `usage` to say what these are.
template <class Bench>
int run_bench(int argc, char** argv, const char* usage, Bench bench) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} {}\n", argv[0], usage);
    return 2;
  }
  return run_bench(
      [&] { bench(std::string(argv[1]), std::vector<std::string>(argv + 2, argv + argc)); });
}

}  // namespace sluice
