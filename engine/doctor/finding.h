/// One line of `sluice doctor`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::doctor {

enum class Verdict : std::uint8_t {
  kOk,
  kLess,    ///< a run works, slower or smaller than it could
  kMissing  ///< a run does not start
};

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string subject;  ///< "memory"
  std::string found;    ///< what there is
  std::string fix;      ///< what to change, as exactly as can be; empty where all is well
};

/// For people: verdict, subject and what was found in columns, under it what to change.
std::string table(std::span<const Finding> findings);

/// Whether something is kMissing.
bool any_missing(std::span<const Finding> findings);

}  // namespace sluice::doctor
