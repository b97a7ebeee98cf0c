/// The verbs of the command line. They throw sluice::Error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/units.h"

namespace sluice::app {

struct TrainFlags {
  bool dry_run = false;  ///< says whether and how it fits, and stops
  bool change = false;  ///< goes on from a checkpoint although the numbers of its steps were others
};

/// `sluice train FILE [key=value...] [--dry-run] [--change]`; the process exit code.
int train(const std::string& file, const std::vector<std::string>& overrides,
          const TrainFlags& flags);

/// `sluice eval FILE [key=value...]`: the loss of the run's first weights on data.valid.
void evaluate(const std::string& file, const std::vector<std::string>& overrides);

struct ExportFlags {
  DType dtype = DType::kBf16;
  Bytes shard_size = 5_GiB;
};

/// `sluice export CHECKPOINT -o OUT`: the weights of a checkpoint, or of a run's newest one, as
/// final/ has them.
void export_weights(const std::string& checkpoint, const std::string& out,
                    const ExportFlags& flags);

/// `sluice checkpoint list RUN`: the newest first.
void list_checkpoints(const std::string& run);
/// `sluice checkpoint verify CHECKPOINT`, or all of a run: reads every byte; the process exit code.
int verify_checkpoints(const std::string& checkpoint);
/// `sluice checkpoint show CHECKPOINT`, or the newest of a run.
void show_checkpoint(const std::string& checkpoint);

/// `sluice doctor [FILE [key=value...]]`: what this machine gives a run, and what to change; the
/// process exit code.
int doctor(const std::string& file, const std::vector<std::string>& overrides);

/// `sluice data samples FILE [key=value...]`: samples of data.train as lines of JSON, after one on
/// all of them (engine/data/inspect.h).
void print_samples(const std::string& file, const std::vector<std::string>& overrides,
                   std::int64_t first, std::int64_t count);

/// `sluice config show FILE [key=value...]`: every value of the run, defaults included.
void show_config(const std::string& file, const std::vector<std::string>& overrides);
/// `sluice config schema`: JSON Schema of the run file.
void print_schema();
/// `sluice config reference`: docs/config.md.
void print_reference();

/// `sluice config validate FILE [key=value...]`: what can be said without starting. Says "ok", with
/// the sizes of the run.
void validate_config(const std::string& file, const std::vector<std::string>& overrides);
/// `sluice config init`: a run file that validate_config() accepts, to `out` as import_deepspeed().
void init_config(const std::string& model, const std::vector<std::string>& train,
                 const std::vector<std::string>& valid, const std::string& out);
/// `sluice config import-deepspeed FILE [-o OUT]`: a run file to OUT, which must not exist; empty:
/// to the standard output.
void import_deepspeed(const std::string& file, const std::string& out);

}  // namespace sluice::app
