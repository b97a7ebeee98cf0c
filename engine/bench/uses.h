/// What a sweep is used for: a page to look at, fio beside it, a run file, an answer for a model.
#pragma once

#include <string>
#include <vector>

#include "engine/bench/drive_run.h"

namespace sluice::bench {

/// Empty, or false: not asked for.
struct Uses {
  std::string html;  ///< a file
  bool compare_fio = false;
  std::string write_config;  ///< a run file
  std::string model;         ///< parameters: "8B"
  std::string endurance;     ///< of the drive, "600TB"
  double tflops = 0;         ///< that the machine computes
};

/// Before minutes are spent: sizes that are none, files that cannot be written, fio that is not
/// there. Throws kConfig, kIo, kEnv.
void check(const Uses& uses);

/// Free bytes that compare_fio needs on each drive: our file, and fio's.
Bytes room_to_compare();

/// With results of drives alone, and behind them that of all together where there are several: it
/// is what the page, the run file and the answer are about. A result without a winner has no use.
///
/// Prints what came of it, and asks `options` how much more may be written.
/// Throws  kConfig, kIo, as run_fio() and write_aio()
void make_use(const Uses& uses, const std::vector<DriveResult>& results, const RunOptions& options,
              Progress& progress);

}  // namespace sluice::bench
