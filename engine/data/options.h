/// What to train on, and how the learning rate goes up and down.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace sluice::data {

enum class DataFormat : std::uint8_t { kAuto, kTokens, kText };
enum class TokenDType : std::uint8_t { kAuto, kUint16, kUint32 };

struct DataOptions {
  std::vector<std::string> train;              ///< globs
  std::vector<std::string> valid;              ///< globs; may be empty
  DataFormat format = DataFormat::kAuto;       ///< auto: .bin is tokens, anything else text
  TokenDType token_dtype = TokenDType::kAuto;  ///< auto: uint16 when the vocabulary fits in it
  std::int64_t seq_len = 1024;
  bool packing = true;      ///< several documents may share a sample
  bool mask_prompt = true;  ///< where a token set has a mask: only what it marks counts
  bool shuffle = true;
};

/// A count of steps, or a fraction of all steps.
using StepsOrShare = std::variant<std::int64_t, double>;

enum class SchedulerType : std::uint8_t { kConstant, kLinear, kCosine, kWsd };

struct SchedulerOptions {
  SchedulerType type = SchedulerType::kCosine;
  StepsOrShare warmup_steps = 0.03;
  double min_lr_ratio = 0.1;
};

}  // namespace sluice::data
