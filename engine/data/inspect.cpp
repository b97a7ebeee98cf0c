#include "engine/data/inspect.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace sluice::data {
namespace {

using nlohmann::ordered_json;

std::vector<Piece> pieces_of(const Dataset& data, std::int64_t k) {
  if (data.documents() != nullptr) return data.documents()->pieces(k);
  return {{.first = k * data.seq_len(), .places = static_cast<std::int32_t>(data.seq_len())}};
}

}  // namespace

std::string describe_json(const Dataset& data) {
  const std::int64_t places = data.samples() * data.seq_len();
  ordered_json json = {{"seq_len", data.seq_len()}, {"samples", data.samples()}};
  json["places"] = places;
  json["padding"] = 0;
  for (const char* key : {"documents", "pieces"}) json[key] = nullptr;
  json["targets"] = places;
  if (data.documents() != nullptr) {
    const DocumentCounts& counts = data.documents()->counts();
    json["padding"] = places - counts.places;
    json["documents"] = counts.documents;
    json["pieces"] = counts.pieces;
    json["targets"] = counts.targets;
  }
  json["kind"] = data.is_text() ? "text" : "tokens";
  json["tokenizer"] = data.tokenizer().empty() ? ordered_json() : ordered_json(data.tokenizer());
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string sample_json(const Dataset& data, std::int64_t k) {
  ordered_json documents = ordered_json::array();
  std::int64_t padding = data.seq_len();
  for (const Piece& piece : pieces_of(data, k)) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(piece.places) + 1);
    std::vector<std::uint8_t> counts(tokens.size());
    data.row().read(piece.first, tokens);
    data.row().read_counts(piece.first, counts);
    counts.front() = 0;  // nothing comes before it
    documents.push_back({{"tokens", tokens}, {"counts", counts}});
    padding -= piece.places;
  }
  return ordered_json{{"sample", k}, {"documents", documents}, {"padding", padding}}.dump();
}

}  // namespace sluice::data
