/// What becomes of each key of a DeepSpeed configuration: one row per key. The import, its report
/// and docs/deepspeed.md come from this table; a key that is not here is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

enum class Conversion : std::uint8_t {
  kSame,      ///< the value as it stands
  kCount,     ///< a whole number, however it is written: 1000, 1e3
  kElements,  ///< elements of optimizer state -> a size
  kBytes,     ///< a bare number of bytes -> a size
  kFolder,    ///< one more of a list of paths
  kWords,     ///< one of `words`; any other value is refused
  kDropped    ///< no value has a place here
};

struct Word {
  std::string theirs;       ///< compared without case; numbers by value
  std::string ours;         ///< empty: nothing is written
  std::string unless = {};  ///< nothing is written where this key is true
};

/// What DeepSpeed takes where a key is not set, if sluice would take something else.
struct Unset {
  std::string where;                ///< only where this key is set; empty: always
  std::vector<std::string> values;  ///< and to one of these; empty: to any
  std::string theirs;
  std::string ours;       ///< empty: nothing is written
  std::string note = {};  ///< how the numbers can differ all the same: nobody may overlook it
};

struct DeepSpeedKey {
  std::string from;  ///< "zero_optimization.stage"; "wandb.*" is all that has no row of its own
  Conversion conversion = Conversion::kDropped;
  std::string to = {};            ///< a key of the run file
  std::vector<Word> words = {};   ///< looked at first, whatever the conversion
  std::string note = {};          ///< why a value is dropped or refused, or what the mapping means
  std::vector<Unset> unset = {};  ///< the first that applies
  std::string only_with = {};     ///< dropped where this key is not true
};

/// In the order of docs/deepspeed.md.
const std::vector<DeepSpeedKey>& deepspeed_keys();

/// The row of a key: its own, else the one of the nearest section that has one for all of it.
const DeepSpeedKey* find_deepspeed_key(std::string_view path);
/// Whether rows begin with "path.".
bool is_deepspeed_section(std::string_view path);

/// docs/deepspeed.md.
std::string deepspeed_markdown();

/// Parts of the table, and what rows of it are made by. Private to this room.
std::vector<DeepSpeedKey> deepspeed_zero_keys();
DeepSpeedKey dropped(std::string from, std::string why);
DeepSpeedKey refused(std::string from, std::string why);
/// All other values are refused.
DeepSpeedKey only(std::string from, std::string value, std::string why);

}  // namespace sluice::config
