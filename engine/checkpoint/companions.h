/// What stands beside the weights of a model that came from a folder, and goes on into the next.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/units.h"
#include "engine/shape/decoder.h"

namespace sluice::checkpoint {

struct Companions {
  /// Of config.json, kept key for key; null: written from the decoder.
  std::shared_ptr<const nlohmann::json> config;
  std::vector<std::filesystem::path> files;  ///< copied under their names
};

/// Of a folder its config.json, how it generates, its tokenizer and its chat template, as far as
/// they are there; of a config.json itself nothing else. Throws kConfig when there is no such file,
/// kFormat
Companions read_companions(const std::filesystem::path& folder_or_config);

/// Of a model that came from no folder: its config.json is written from the decoder.
Companions companions_of(const shape::Decoder& decoder);

/// Says which type the weights have, where both versions of transformers look.
void set_dtype(nlohmann::json& config, DType dtype);

Bytes size_of(const Companions& companions);
/// Copies the files, synced. Throws kIo
void copy_files(const Companions& companions, const std::filesystem::path& folder);

}  // namespace sluice::checkpoint
