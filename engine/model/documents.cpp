#include "engine/model/documents.h"

namespace sluice::model {

std::vector<Document> documents_in(std::span<const std::int64_t> positions, std::int64_t seq) {
  std::vector<Document> documents;
  for (std::size_t place = 0; place < positions.size(); ++place) {
    const std::int64_t row = std::int64_t(place) / seq, i = std::int64_t(place) % seq;
    const bool begins = i == 0 || positions[place] == 0;
    if (begins) documents.push_back({row, i, 0});
    ++documents.back().tokens;
  }
  return documents;
}

}  // namespace sluice::model
