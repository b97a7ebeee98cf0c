/// What a damaged file says, fit for a message.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace sluice::data {

/// The first 60 characters without white space at the end; '?' for what is not printable ASCII.
inline std::string excerpt(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string shown(text.substr(0, std::min(kLongest, text.find_last_not_of(" \n") + 1)));
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

}  // namespace sluice::data
