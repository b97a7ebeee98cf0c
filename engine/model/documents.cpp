#include "engine/model/documents.h"

namespace sluice::model {

std::vector<Document> documents_of(std::span<const std::int32_t> ends, std::int64_t seq) {
  std::vector<Document> documents;
  for (std::size_t i = 1; i < ends.size() && ends[i] > ends[i - 1]; ++i) {
    documents.push_back({ends[i - 1] / seq, ends[i - 1] % seq, ends[i] - ends[i - 1]});
  }
  return documents;
}

}  // namespace sluice::model
