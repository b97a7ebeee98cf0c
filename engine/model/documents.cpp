#include "engine/model/documents.h"

#include <algorithm>

namespace sluice::model {

std::vector<Document> documents_of(std::span<const std::int32_t> ends, std::int64_t seq) {
  std::vector<Document> documents;
  for (std::size_t i = 1; i < ends.size() && ends[i] > ends[i - 1]; ++i) {
    documents.push_back({ends[i - 1] / seq, ends[i - 1] % seq, ends[i] - ends[i - 1]});
  }
  return documents;
}

std::vector<Group> groups_of(std::span<const Document> documents, std::int64_t tokens) {
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, tokens / kDocumentScratch));
  std::vector<Group> groups;
  std::int64_t begin = 0;
  for (std::size_t first = 0; first < documents.size(); first += most) {
    Group group{first, std::min(most, documents.size() - first), begin, 0};
    for (const Document& document : documents.subspan(first, group.count)) {
      group.tokens += document.tokens;
    }
    begin += group.tokens;
    groups.push_back(group);
  }
  return groups;
}

}  // namespace sluice::model
