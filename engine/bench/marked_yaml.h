/// A YAML document that knows where in its text each value stands, so that the text can be changed
/// around everything else. A private header of this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::bench {

struct MarkedYaml {
  enum class Kind : std::uint8_t { kNull, kScalar, kAlias, kList, kMap };
  Kind kind = Kind::kNull;
  std::size_t at = 0;      ///< where its first byte is; of a kNull without a word, somewhere behind
  std::string text;        ///< of kScalar, without quotes
  std::string tag;         ///< "?" and "!" are those that YAML gives itself
  std::size_t anchor = 0;  ///< the number of its anchor, of kAlias that of its target; 0 = none
  bool flow = false;       ///< of kMap and kList: in braces or brackets
  std::vector<MarkedYaml> items;  ///< of kMap key, value, key, value

  bool plain() const { return anchor == 0 && (tag.empty() || tag == "?" || tag == "!"); }
  /// Says the same, wherever it stands and however it is laid out.
  bool same(const MarkedYaml& other) const;
};

/// The only document of `text`; kNull when there is none. Throws kConfig, "line 3: ...", when it is
/// no YAML or more than one document.
MarkedYaml parse_marked(std::string_view text);

}  // namespace sluice::bench
