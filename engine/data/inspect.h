/// Samples as JSON, for `sluice data samples`.
#pragma once

#include <cstdint>
#include <string>

#include "engine/data/dataset.h"

namespace sluice::data {

/// {"seq_len", "samples", "places", "padding", "documents", "pieces", "targets", "kind",
/// "tokenizer"}: of all samples. A stream has null for what only documents have.
std::string describe_json(const Dataset& data);

/// {"sample", "documents": [{"tokens", "counts"}], "padding"}: a document's tokens, one more than
/// its places, and of each whether it counts as a target.
std::string sample_json(const Dataset& data, std::int64_t k);

}  // namespace sluice::data
