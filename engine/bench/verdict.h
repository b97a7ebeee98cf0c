/// What a drive's rates mean to somebody who wants to train a model with its optimizer state there:
/// seconds of a step, tokens that hide them, and days until the drive is worn out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::bench {

/// Parameters: "8B", "1.3B", "124M", "350K", "1T". Throws kConfig.
std::uint64_t parse_parameters(std::string_view text);

/// Bytes per second. Each direction with the other under way (mixed), and alone; 0 alone = not
/// measured.
struct Rates {
  double mixed_read = 0, mixed_write = 0;
  double read = 0, write = 0;
};

struct Question {
  std::uint64_t parameters = 0;
  Rates rates;
  std::optional<double> flops_per_s;  ///< what the machine computes; nullopt: not asked
  std::optional<double> endurance;    ///< bytes that the drive may still be written
  /// What a step takes, where it is known and longer than the drive needs.
  std::optional<double> step_s;
};

/// A step reads and writes the whole state once: master weight and both moments, fp32. (A run whose
/// weights are in host memory, in bf16, moves a sixth less: zero::kSplitStateBytesPerElem.)
struct Verdict {
  std::uint64_t parameters = 0;
  double read_bytes = 0, written_bytes = 0;
  double drive_s = 0;  ///< a step's reads and writes, under way together
  double step_s = 0;   ///< no less than drive_s
  double mixed_rate = 0;
  std::optional<double> flops_per_s;
  double tokens = 0;  ///< of a step that computes for drive_s; 0 without flops_per_s
  std::optional<double> endurance;
  double steps = 0, days = 0;  ///< until it is used up; 0 without endurance
};

/// Throws kLogic when a mixed rate is 0.
Verdict judge(const Question& question);

/// Two to four lines, each with its line break.
std::string text_of(const Verdict& verdict);

}  // namespace sluice::bench
