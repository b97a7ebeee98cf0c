/// Weights that do not fit the model, or are none, are refused before anything is trained.
#include "engine/train/first_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/checkpoint/header.h"
#include "engine/checkpoint/writer.h"
#include "engine/shape/presets.h"
#include "engine/train/host_ops.h"
#include "engine/zero/layout.h"
#include "nvme/aligned.h"
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

/// Grain by grain, as several threads would.
void by_grains(std::size_t count, const std::function<void(std::size_t, std::size_t)>& work) {
  for (std::size_t at = 0; at < count; at += kGrainElems) work(at, at + kGrainElems);
}

/// The masters of a chunk; the moments are zero.
std::vector<float> values_of(const FirstValues& values, int segment, const zero::Chunk& chunk,
                             const checkpoint::Each& each = by_grains) {
  const Bytes bytes = chunk.elems * zero::kStateBytesPerElem;
  const nvme::AlignedBytes memory = nvme::allocate_aligned(bytes);
  const std::span state(reinterpret_cast<float*>(memory.get()), 3 * chunk.elems);
  std::ranges::fill(state, -1.0F);
  values.read(segment, chunk, state).wait();
  values.fill(segment, chunk, state, each);
  EXPECT_TRUE(std::ranges::all_of(state.subspan(chunk.elems), [](float x) { return x == 0; }));
  return {state.begin(), state.begin() + static_cast<std::ptrdiff_t>(chunk.elems)};
}

class FirstValuesTest : public testing::Test {
 protected:
  /// The weights after a change.
  void refuses(const std::vector<std::string>& words, const auto& change) {
    Tensors tensors = weights_of(*model_);
    change(tensors);
    save(folder_, tensors);
    expect_error(Errc::kFormat, words, [&] {
      const auto values = stored();
      for (int s = 0; s < segments(); ++s) values_of(*values, s, {0, layout(s).elems});
    });
  }

  std::unique_ptr<FirstValues> stored() const {
    return stored_values(folder_.path(), model_, nvme::Options());
  }
  int segments() const { return static_cast<int>(model_->segments.size()); }
  const shape::Segment& segment(int s) const {
    return model_->segments[static_cast<std::size_t>(s)];
  }
  zero::Layout layout(int s) const { return zero::make_layout(segment(s)); }

  /// What weights_of() has at this element of a segment.
  float expected(int s, const zero::Layout& layout, std::uint64_t elem) const {
    for (const zero::Placed& p : layout.tensors) {
      if (elem < p.offset_elems || elem >= p.end()) continue;
      const auto& spec = segment(s).tensors[static_cast<std::size_t>(p.tensor)];
      return static_cast<float>(spec.name.back()) + static_cast<float>(elem - p.offset_elems);
    }
    return 0;
  }

  TempFolder folder_;
  const std::shared_ptr<const shape::Model> model_ =
      std::make_shared<const shape::Model>(small_model(shape::find_preset("tiny").family));
  const shape::TensorSpec& norm_ = model_->segments.back().tensors.front();
};

/// Chunks in which a grain has several tensors, and such that cut a tensor anywhere.
TEST_F(FirstValuesTest, AreThoseOfTheFilesChunkByChunk) {
  save(folder_, weights_of(*model_));
  const auto values = stored();
  for (int s = 0; s < segments(); ++s) {
    const zero::Layout whole = layout(s);
    for (const std::uint64_t most : {whole.elems, 5 * kGrainElems}) {
      for (std::uint64_t first = 0; first < whole.elems; first += most) {
        const zero::Chunk chunk{first, std::min(most, whole.elems - first)};
        std::uint64_t elem = first;
        for (const float x : values_of(*values, s, chunk)) {
          ASSERT_EQ(x, expected(s, whole, elem)) << segment(s).name() << ' ' << elem;
          ++elem;
        }
      }
    }
  }
}

TEST_F(FirstValuesTest, DrawnOnesAreTheSameOnAnyNumberOfThreads) {
  const auto values = drawn_values(7, model_);
  for (int s = 0; s < segments(); ++s) {
    const zero::Chunk whole{0, layout(s).elems};
    const std::vector<float> expected = values_of(*values, s, whole);
    for (unsigned threads = 1; threads <= 4; ++threads) {
      // Nothing here is stored by it: no probe, which on a large cache is long under a sanitizer.
      const cpu_adam::Optimizer optimizer(
          {.threads = threads, .stores = cpu_adam::Stores::kCached});
      EXPECT_EQ(values_of(*values, s, whole, threads_of(optimizer)), expected) << s << threads;
    }
  }
}

TEST_F(FirstValuesTest, NamesMayLackTheirFirstPart) {
  Tensors shorter;
  for (auto& [name, tensor] : weights_of(*model_)) {
    shorter[name.substr(name.find('.') + 1)] = tensor;
  }
  save(folder_, shorter);
  const int last = segments() - 1;
  EXPECT_EQ(values_of(*stored(), last, {0, layout(last).elems})[0],
            static_cast<float>(norm_.name.back()));
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
  save(folder_, weights_of(*model_));
  std::string bytes = folder_.read("model.safetensors");
  bytes.replace(bytes.find("F32"), 3, "I32");
  folder_.write("model.safetensors", bytes);
  expect_error(Errc::kFormat, {"model.safetensors", "is I32; only F32, BF16, F16 are read"},
               [&] { stored(); });
}

TEST_F(FirstValuesTest, ConstantsBesideTheWeightsAreLeftAlone) {
  Tensors tensors = weights_of(*model_);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{2}, {1.0F, 0.5F}};
  save(folder_, tensors);
  EXPECT_NO_THROW(stored());
}

}  // namespace
}  // namespace sluice::train
