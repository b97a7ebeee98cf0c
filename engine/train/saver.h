/// Carries out the ops of checkpoint programs. A checkpoint that cannot be written is given up, and
/// said; the run goes on and tries again at the next. But a drive that gives requests back no more
/// ends the run, as one of the nvme tier does.
///
/// Thread  run(): lanes, several at once on different ops; the rest: one
/// Throws  run(): kWatchdog
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/base/clock.h"
#include "engine/checkpoint/companions.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/state_writer.h"
#include "engine/schedule/setup.h"
#include "engine/train/job.h"
#include "engine/train/op_bytes.h"

namespace sluice::train {

class Saver {
 public:
  /// `job` outlives it.
  Saver(const schedule::Setup& setup, const Job& job);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// `nvme_written`: by the run so far.
  void run(const OpBytes& op, Bytes nvme_written);

  /// The program of this position has wholly run: its checkpoint gets its name, and older ones go.
  /// Where it stands; nullopt: it was given up, which has been said.
  std::optional<std::filesystem::path> publish(std::int64_t step);

 private:
  struct Open {
    std::unique_ptr<checkpoint::StateWriter> writer;
    Nanos begin = 0;
    std::string error;   // empty: so far so good
    bool hangs = false;  // its drive
  };
  void begin(Open& open, const OpBytes& op, Bytes nvme_written) const;
  void write_record(const Open& open, const OpBytes& op) const;
  void write_gradient(const Open& open, const OpBytes& op) const;
  void seal(const Open& open, const OpBytes& op) const;
  std::size_t record(const prefetch::Where& chunk) const;
  Open& open_of(std::int64_t step);
  void given_up(Open& open, const char* why, bool hangs);
  bool failed(const Open& open);

  const Job& job_;
  const std::filesystem::path folder_;
  checkpoint::Companions companions_;
  checkpoint::Manifest laid_out_;            // without a position
  checkpoint::Manifest with_gradients_;      // the same where a gradient waits
  std::vector<std::size_t> first_record_{};  // by segment
  std::mutex mutex_;                         // guards what follows
  std::map<std::int64_t, Open> open_;        // by position
};

}  // namespace sluice::train
