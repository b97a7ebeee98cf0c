/// A run of a tiny model in a temporary folder, looked at from inside: what the end-to-end tests
/// share.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "engine/train/session.h"
#include "tests/support/temp_folder.h"

namespace sluice::train {

using test::TempFolder;

/// Raw uint16 tokens below `vocab`, from a fixed generator.
void write_tokens(const std::string& path, std::size_t count, std::uint16_t vocab);

/// Sizes that are no multiple of anything.
shape::Decoder tiny_gpt();    ///< layer norm, learned positions, biases, tied embeddings
shape::Decoder tiny_llama();  ///< RMS norm, rotary, grouped-query attention, gated MLP, untied

inline constexpr std::int64_t kTinySteps = 5;

/// So many steps of two sequences of 13 tokens; fp32, everything on the host, copies forced, 48 KiB
/// of state per chunk. `folder` holds the tokens and the run.
Job tiny_job(const TempFolder& folder, const shape::Decoder& decoder);

/// The only place where these tests make one.
Session make_session(const Job& job);

/// Everything that two runs with the same numbers must agree on, bit for bit.
struct Fingerprint {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> largest_norms;  ///< of segments that are clipped one by one
  std::vector<double> valid_losses;
  std::vector<bool> clipped, skipped;
  std::vector<std::int64_t> loss_scales;  ///< of fp16
  std::uint64_t state = 0;                ///< hash of master, m and v of every grain, in order
  std::uint64_t weights = 0;              ///< hash of the final weights' file
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

struct Disturbance {
  /// These steps get a gradient that is not finite (steps count from 0).
  std::set<std::int64_t> spoiled_steps = {};
  float spoiled_by = std::numeric_limits<float>::infinity();
  std::uint64_t delay_seed = 0;  ///< random delays before and after ops; 0 = none
  bool poisons = true;           ///< slots that the driver frees are filled with NaN
};

/// A run, and what it did on the way.
struct Observed {
  Fingerprint print;
  plan::Plan plan;
  std::vector<Span> spans;  ///< of every op of every program
  std::vector<data::StepRecord> records;
  bool strict = false;  ///< only the device's streams reached the gpu tier

  /// Ops of this kind, over all programs.
  std::int64_t count(schedule::OpId id) const;
};

/// Runs the job; its hooks for handlers and queues work as ever.
Observed observe(Job job, const Disturbance& disturbance = {});

/// The same, when only the bits are of interest.
Fingerprint run(Job job, const Disturbance& disturbance = {});

/// The same: what the run wrote for people, in one line, since a terminal's width cuts sentences.
std::string said_by(const Job& job);

}  // namespace sluice::train
