/// Weights that do not fit the model, or are none, are refused before anything is trained.
#include "engine/train/first_values.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/header.h"
#include "engine/shape/presets.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::train {
namespace {

using test::expect_error;
using test::TempFolder;

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

shape::Model small_model(const std::string& family) {
  shape::Decoder d = shape::find_preset("tiny");
  d.family = family;
  d.layers = 1;
  return shape::make_model(d);
}

/// Element i of every tensor is its first letter's code plus i.
Tensors weights_of(const shape::Model& model) {
  Tensors tensors;
  for (const auto& segment : model.segments) {
    for (const auto& spec : segment.tensors) {
      Tensor& t = tensors[spec.name];
      t.shape = spec.shape;
      for (std::uint64_t i = 0; i < spec.numel(); ++i) {
        t.values.push_back(static_cast<float>(spec.name.back()) + static_cast<float>(i));
      }
    }
  }
  return tensors;
}

void save(const TempFolder& folder, const Tensors& tensors) {
  std::vector<checkpoint::Entry> entries;
  std::string data;
  for (const auto& [name, t] : tensors) {
    const Bytes begin = data.size();
    data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
    entries.push_back({name, "F32", t.shape, begin, data.size()});
  }
  folder.write("model.safetensors", checkpoint::make_header(entries) + data);
}

class FirstValuesTest : public testing::Test {
 protected:
  /// The weights after a change.
  void refuses(const std::vector<std::string>& words, const auto& change) {
    Tensors tensors = weights_of(model_);
    change(tensors);
    save(folder_, tensors);
    expect_error(Errc::kFormat, words, [&] {
      const auto values = stored_values(folder_.path(), model_);
      for (const auto& segment : model_.segments) {
        for (const auto& spec : segment.tensors) {
          std::vector<float> all(spec.numel());
          values->fill(spec, 0, all);
        }
      }
    });
  }

  TempFolder folder_;
  const shape::Model model_ = small_model(shape::find_preset("tiny").family);
  const shape::TensorSpec& norm_ = model_.segments.back().tensors.front();
};

TEST_F(FirstValuesTest, AreThoseOfTheFilesPieceByPiece) {
  save(folder_, weights_of(model_));
  const auto values = stored_values(folder_.path(), model_);
  for (const auto& segment : model_.segments) {
    for (const auto& spec : segment.tensors) {
      std::vector<float> part(spec.numel() / 2);
      values->fill(spec, spec.numel() - part.size(), part);
      EXPECT_EQ(part.back(),
                static_cast<float>(spec.name.back()) + static_cast<float>(spec.numel() - 1))
          << spec.name;
    }
  }
}

TEST_F(FirstValuesTest, NamesMayLackTheirFirstPart) {
  Tensors shorter;
  for (auto& [name, tensor] : weights_of(model_)) {
    shorter[name.substr(name.find('.') + 1)] = tensor;
  }
  save(folder_, shorter);
  const auto values = stored_values(folder_.path(), model_);
  std::vector<float> first(1);
  values->fill(norm_, 0, first);
  EXPECT_EQ(first[0], static_cast<float>(norm_.name.back()));
}

TEST_F(FirstValuesTest, WhatDoesNotFitIsNamed) {
  refuses({norm_.name, "has no tensor"}, [&](Tensors& t) { t.erase(norm_.name); });
  refuses({"extra", "belongs to no part"}, [](Tensors& t) { t["extra"] = {{1}, {0.0F}}; });
  refuses({norm_.name, "[1, ", "asks for ["},
          [&](Tensors& t) { t[norm_.name].shape.insert(t[norm_.name].shape.begin(), 1); });
  refuses({"model.safetensors", norm_.name, "element 3", "nan", "damaged"},
          [&](Tensors& t) { t[norm_.name].values[3] = std::numeric_limits<float>::quiet_NaN(); });
  refuses({norm_.name, "inf"},
          [&](Tensors& t) { t[norm_.name].values[0] = std::numeric_limits<float>::infinity(); });
}

TEST_F(FirstValuesTest, OfATypeThatIsNotReadAreRefusedBeforeAnythingIsRead) {
  save(folder_, weights_of(model_));
  std::string bytes = folder_.read("model.safetensors");
  bytes.replace(bytes.find("F32"), 3, "I32");
  folder_.write("model.safetensors", bytes);
  expect_error(Errc::kFormat, {"model.safetensors", "is I32; only F32, BF16, F16 are read"},
               [&] { stored_values(folder_.path(), model_); });
}

TEST_F(FirstValuesTest, ConstantsBesideTheWeightsAreLeftAlone) {
  Tensors tensors = weights_of(model_);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{2}, {1.0F, 0.5F}};
  save(folder_, tensors);
  EXPECT_NO_THROW(stored_values(folder_.path(), model_));
}

}  // namespace
}  // namespace sluice::train
