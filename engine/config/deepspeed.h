/// From a DeepSpeed configuration to a run file, by the table in deepspeed_keys.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

enum class Fate : std::uint8_t {
  kWritten,  ///< to the run file
  kLeft,     ///< auto, which its key here does not take: at its default
  kDropped
};

/// What became of one key.
struct Imported {
  std::string from;
  std::string theirs;  ///< the value, for people
  Fate fate = Fate::kDropped;
  std::string to;   ///< of kWritten and kLeft: a key of the run file
  std::string why;  ///< the arithmetic, the meaning or the reason; may be empty
};

struct DeepSpeedImport {
  std::vector<Imported> keys;  ///< in the order of the file, then what DeepSpeed takes without them
  std::vector<std::string> notes;  ///< where numbers can differ from DeepSpeed's; in `yaml` as well
  /// A run file that lacks a model and data only, with comments on every key.
  std::string yaml;
};

/// `file` is what messages call it. Throws kConfig: no JSON, or keys that are unknown, contradict
/// each other, or stand for what is not built or gives other numbers; all of those at once.
DeepSpeedImport import_deepspeed(std::string_view text, const std::string& file);

}  // namespace sluice::config
