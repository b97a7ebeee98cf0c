#include "engine/train/first_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/reader.h"
#include "engine/shape/init.h"

namespace sluice::train {
namespace {

class Drawn : public FirstValues {
 public:
  explicit Drawn(std::uint64_t seed) : seed_(seed) {}
  void fill(const shape::TensorSpec& tensor, std::uint64_t first_element,
            std::span<float> out) const override {
    shape::initial_values(seed_, tensor, first_element, out);
  }

 private:
  std::uint64_t seed_;
};

/// Files of the base model alone leave out the first part of each name, as gpt2's do.
std::string without_prefix(const std::string& name) {
  return name.substr(name.find('.') + 1);
}

/// Constants that older files hold beside the weights, and a tied head's second copy.
bool is_no_weight(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEndings = {".attn.bias", ".attn.masked_bias",
                                                        ".rotary_emb.inv_freq", "lm_head.weight"};
  return std::ranges::any_of(kEndings, [&](auto ending) { return name.ends_with(ending); });
}

/// Without a branch per number, so several are looked at at once.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t found = 0;
  for (const float x : values) {
    found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent);
  }
  return found == 0;
}

class Stored : public FirstValues {
 public:
  Stored(const std::filesystem::path& weights, const shape::Model& model)
      : path_(weights.string()), reader_(weights) {
    std::set<std::string> left;
    for (std::string& name : reader_.names()) left.insert(std::move(name));
    for (const shape::Segment& segment : model.segments) {
      for (const shape::TensorSpec& tensor : segment.tensors) left.erase(locate(tensor));
    }
    for (const std::string& name : left) {
      if (name == "lm_head.weight") {
        log::warning(
            fmt::format("{}: lm_head.weight is left alone: config.json says that the head "
                        "is the embedding (tie_word_embeddings)",
                        path_));
      }
      SLUICE_CHECK(is_no_weight(name), kFormat,
                   fmt::format("{}: tensor '{}' belongs to no part of the {} that config.json "
                               "describes",
                               path_, name, model.decoder.family));
    }
  }

  void fill(const shape::TensorSpec& tensor, std::uint64_t first_element,
            std::span<float> out) const override {
    const std::string& name = names_.at(tensor.name);
    reader_.read(name, first_element, out);
    if (all_finite(out)) return;
    const auto bad = std::ranges::find_if_not(out, [](float x) { return std::isfinite(x); });
    throw Error(
        Errc::kFormat,
        fmt::format("{}: element {} of tensor '{}' is {}: the weights are damaged",
                    reader_.file_of(name).string(),
                    first_element + static_cast<std::uint64_t>(bad - out.begin()), name, *bad));
  }

 private:
  const std::string& locate(const shape::TensorSpec& tensor) {
    std::string name = tensor.name;
    if (!reader_.contains(name)) name = without_prefix(name);
    SLUICE_CHECK(reader_.contains(name), kFormat,
                 fmt::format("{}: has no tensor '{}' of shape [{}], which config.json asks for",
                             path_, tensor.name, fmt::join(tensor.shape, ", ")));
    const checkpoint::Entry& entry = reader_.entry(name);
    reader_.check_readable(name);
    SLUICE_CHECK(entry.shape == tensor.shape, kFormat,
                 fmt::format("{}: tensor '{}' has shape [{}], config.json asks for [{}]", path_,
                             name, fmt::join(entry.shape, ", "), fmt::join(tensor.shape, ", ")));
    return names_.emplace(tensor.name, std::move(name)).first->second;
  }

  std::string path_;
  checkpoint::Reader reader_;
  std::map<std::string, std::string> names_;  // of the model's tensors -> of the files'
};

}  // namespace

std::unique_ptr<FirstValues> drawn_values(std::uint64_t seed) {
  return std::make_unique<Drawn>(seed);
}

std::unique_ptr<FirstValues> stored_values(const std::filesystem::path& weights,
                                           const shape::Model& model) {
  return std::make_unique<Stored>(weights, model);
}

}  // namespace sluice::train
