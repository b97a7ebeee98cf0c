/// The run file that somebody begins with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::config {

struct FirstRun {
  std::string model;  ///< for model.path
  bool pretrained = false;
  std::int64_t max_positions = 0;
  std::vector<std::string> train;
  std::vector<std::string> valid;
  std::int64_t micro_batches = 1;  ///< per step
};

/// The keys that people change, each below what the field table says of it.
std::string first_run_file(const FirstRun& run);

}  // namespace sluice::config
