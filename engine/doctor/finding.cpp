#include "engine/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::doctor {
namespace {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kLess:
      return "less";
    case Verdict::kMissing:
      return "missing";
  }
  return "";
}

}  // namespace

std::string table(std::span<const Finding> findings) {
  std::size_t width = 0;
  for (const Finding& f : findings) width = std::max(width, f.subject.size());
  std::string text;
  for (const Finding& f : findings) {
    text += fmt::format("{:<7}  {:<{}}  {}\n", name_of(f.verdict), f.subject, width, f.found);
    if (!f.fix.empty()) text += fmt::format("{:<7}  {:<{}}  -> {}\n", "", "", width, f.fix);
  }
  return text;
}

bool any_missing(std::span<const Finding> findings) {
  return std::ranges::any_of(findings,
                             [](const Finding& f) { return f.verdict == Verdict::kMissing; });
}

}  // namespace sluice::doctor
