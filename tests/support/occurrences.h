/// How often people are told something.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::test {

/// Of `what` in `text`; two may overlap.
inline std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace sluice::test
