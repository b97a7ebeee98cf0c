/// A Chrome trace of some steps, for chrome://tracing and Perfetto: a track per lane, an event per
/// op.
///
/// A lane that runs several ops at once has a row for each. Times are microseconds; an event's
/// `args` say which piece of the model it is about, how long before it could have begun, and what
/// it waited for last.
///
/// Thread  one; write() leaves the file to a thread of its own, which the destructor joins
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/trace.h"
#include "engine/train/options.h"
#include "prefetch/program.h"

namespace sluice::train {

class Profile {
 public:
  Profile(StepRange steps, std::string path, const prefetch::Lanes& lanes,
          const prefetch::Pools& pools);

  bool wants(std::int64_t step) const { return steps_.first <= step && step <= steps_.last; }
  /// A program of that step which has run; it must outlive this. Takes its spans out of `ring`.
  void collect(std::int64_t step, std::uint32_t instance, const prefetch::Program& program,
               const Trace& ring);
  /// The first call writes what was collected, if anything was. A file that cannot be written is a
  /// warning, not an error.
  void write();

 private:
  struct Ran {
    std::int64_t step;
    const prefetch::Program* program;
    std::vector<Span> spans;
  };
  std::string json(const Ran& ran, const Span& span, std::uint32_t row, Nanos zero) const;
  void write_file() const;

  const StepRange steps_;
  const std::string path_;
  const prefetch::Lanes lanes_;
  const prefetch::Pools pools_;
  std::vector<Ran> ran_;
  std::jthread writer_;
};

}  // namespace sluice::train
