#include "engine/checkpoint/companions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"
#include "engine/checkpoint/file.h"
#include "engine/checkpoint/json.h"
#include "engine/shape/hf_config.h"

namespace sluice::checkpoint {
namespace {

constexpr std::array<std::string_view, 12> kNames = {"generation_config.json",
                                                     "tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "vocab.json",
                                                     "merges.txt",
                                                     "vocab.txt",
                                                     "tokenizer.model",
                                                     "spiece.model",
                                                     "chat_template.jinja",
                                                     "chat_template.json"};
constexpr std::size_t kPiece = 1 << 20;
constexpr Bytes kMaxConfig = 16_MiB;

/// As config.json spells it.
const char* name_in_config(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBf16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
  }
  return "";
}

void copy_synced(const std::filesystem::path& from, const std::filesystem::path& to) {
  const File source = File::open(from);
  File copy = File::create(to);
  const Bytes size = source.size();
  std::vector<std::byte> piece(std::min<Bytes>(size, kPiece));
  for (Bytes at = 0; at < size; at += piece.size()) {
    const auto bytes = std::span(piece).first(std::min<Bytes>(piece.size(), size - at));
    source.read(at, bytes);
    copy.write(at, bytes);
  }
  copy.sync();
}

}  // namespace

Companions read_companions(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  const bool folder = fs::is_directory(path, none);
  const fs::path file = folder ? path / "config.json" : path;
  SLUICE_CHECK(fs::is_regular_file(file, none), kConfig,
               fmt::format("{} is no file; name a folder with config.json and safetensors, or a "
                           "config.json alone",
                           file.string()));
  Companions companions{std::make_shared<const nlohmann::json>(
                            parse_bounded_json(read_text(file, kMaxConfig), file.string())),
                        {}};
  for (const std::string_view name : kNames) {
    if (folder && fs::is_regular_file(path / name, none)) companions.files.push_back(path / name);
  }
  return companions;
}

Companions companions_of(const shape::Decoder& decoder) {
  return {std::make_shared<const nlohmann::json>(shape::to_config_json(decoder)), {}};
}

void set_dtype(nlohmann::json& config, DType dtype) {
  // Version 5 reads the first, version 4 the second.
  for (const char* key : {"dtype", "torch_dtype"}) config[key] = name_in_config(dtype);
}

Bytes size_of(const Companions& companions) {
  Bytes bytes = 0;
  for (const auto& file : companions.files) bytes += File::open(file).size();
  return bytes;
}

void copy_files(const Companions& companions, const std::filesystem::path& folder) {
  for (const auto& file : companions.files) copy_synced(file, folder / file.filename());
}

}  // namespace sluice::checkpoint
