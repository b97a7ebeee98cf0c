#include "engine/checkpoint/writer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "engine/checkpoint/header.h"
#include "engine/checkpoint/reader.h"
#include "engine/shape/hf_config.h"
#include "tests/checkpoint/weights.h"
#include "tests/support/errors.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::TempFolder;

void write_all(Writer& writer, const shape::Model& model) {
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    writer.write(static_cast<int>(s), 0, flat(model, s));
  }
}

float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return value;
    case DType::kBf16:
      return to_float(to_bf16(value));
    case DType::kF16:
      return to_float(to_fp16(value));
  }
  return 0;
}

void expect_weights(const std::filesystem::path& folder, const shape::Model& model, DType dtype) {
  const Reader reader(folder);
  std::size_t tensors = 0;
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    const shape::Segment& segment = model.segments[s];
    for (const zero::Placed& p : zero::make_layout(segment).tensors) {
      const shape::TensorSpec& spec = segment.tensors[static_cast<std::size_t>(p.tensor)];
      ASSERT_EQ(reader.entry(spec.name).shape, spec.shape);
      const std::vector<float> values = reader.read(spec.name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], rounded(value_of(s, p.offset_elems + i), dtype)) << spec.name << i;
      }
      ++tensors;
    }
  }
  EXPECT_EQ(reader.names().size(), tensors);
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

class WriterOf : public testing::TestWithParam<std::pair<const char*, DType>> {};

TEST_P(WriterOf, PutsEveryElementWhereReadersLookForIt) {
  const TempFolder folder;
  const auto [family, dtype] = GetParam();
  const shape::Model model = small_model(family);
  Writer writer(model, dtype, folder / "final");
  write_all(writer, model);
  writer.finish();
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"final"}));
  EXPECT_EQ(names_in(folder / "final"),
            (std::set<std::string>{"config.json", "model.safetensors"}));
  expect_weights(folder / "final", model, dtype);
}

INSTANTIATE_TEST_SUITE_P(Models, WriterOf,
                         testing::Values(std::pair("gpt2", DType::kF32),
                                         std::pair("gpt2", DType::kBf16),
                                         std::pair("gpt2", DType::kF16),
                                         std::pair("llama", DType::kF32),
                                         std::pair("llama", DType::kBf16)));

TEST(Writer, TakesPiecesOfAnySizeInAnyOrder) {
  const shape::Model model = small_model("gpt2");
  std::vector<std::vector<float>> values;
  for (std::size_t s = 0; s < model.segments.size(); ++s) values.push_back(flat(model, s));
  EXPECT_TRUE(rc::check([&] {
    struct Piece {
      int segment;
      std::uint64_t first, count;
    };
    const TempFolder folder;
    std::vector<Piece> pieces;
    for (std::size_t s = 0; s < model.segments.size(); ++s) {
      const std::uint64_t elems = values[s].size();
      for (std::uint64_t at = 0; at < elems;) {
        const std::uint64_t n = std::min(*rc::gen::inRange<std::uint64_t>(500, 6000), elems - at);
        pieces.push_back({static_cast<int>(s), at, n});
        at += n;
      }
    }
    std::shuffle(pieces.begin(), pieces.end(), std::mt19937(*rc::gen::arbitrary<unsigned>()));
    Writer writer(model, DType::kBf16, folder / "final", *rc::gen::inRange<Bytes>(1, 40) * 1_KiB);
    for (const Piece& p : pieces) {
      const std::span<const float> all = values[static_cast<std::size_t>(p.segment)];
      writer.write(p.segment, p.first, all.subspan(p.first, p.count));
    }
    writer.finish();
    expect_weights(folder / "final", model, DType::kBf16);
    RC_ASSERT(!testing::Test::HasFailure());
  }));
}

TEST(Writer, ConvertsTensorsLargerThanItsBuffer) {
  const TempFolder folder;
  shape::Decoder d = small_model("gpt2").decoder;
  d.vocab = 11000;  // 264,000 elements in the embedding
  const shape::Model model = shape::make_model(d);
  Writer writer(model, DType::kBf16, folder / "final");
  write_all(writer, model);
  writer.finish();
  expect_weights(folder / "final", model, DType::kBf16);
}

/// On a thread per range, cut where no piece of the writer ends.
void on_threads(std::size_t count, const std::function<void(std::size_t, std::size_t)>& work) {
  constexpr std::size_t kRange = 301'007;
  std::vector<std::jthread> threads;
  for (std::size_t at = 0; at < count; at += kRange) {
    threads.emplace_back([&work, at, end = std::min(count, at + kRange)] { work(at, end); });
  }
}

TEST(Writer, WritesTheSameBytesOnAnyNumberOfThreads) {
  const TempFolder folder;
  shape::Decoder d = small_model("gpt2").decoder;
  d.vocab = 50000;  // 1,200,000 elements in the embedding
  const shape::Model model = shape::make_model(d);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const std::string one = std::string("one-") + std::string(name_of(dtype));
    const std::string many = std::string("many-") + std::string(name_of(dtype));
    Writer alone(model, dtype, folder / one);
    Writer together(model, dtype, folder / many, 5_GiB, {}, on_threads);
    for (Writer* writer : {&alone, &together}) {
      write_all(*writer, model);
      writer->finish();
    }
    EXPECT_TRUE(folder.read(one + "/model.safetensors") ==
                folder.read(many + "/model.safetensors"));
    expect_weights(folder / many, model, dtype);
  }
}

TEST(Writer, TakesBitsThatAreRoundedAlready) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer masters(model, DType::kBf16, folder / "masters");
  write_all(masters, model);
  masters.finish();
  Writer bits(model, DType::kBf16, folder / "bits");
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    std::vector<std::uint16_t> values;
    for (const float x : flat(model, s)) values.push_back(to_bf16(x).bits);
    const std::size_t half = values.size() / 2;
    const std::span<const std::uint16_t> all = values;
    bits.write_rounded(static_cast<int>(s), half, all.subspan(half));
    bits.write_rounded(static_cast<int>(s), 0, all.first(half));
  }
  bits.finish();
  expect_weights(folder / "bits", model, DType::kBf16);
  EXPECT_TRUE(folder.read("bits/model.safetensors") == folder.read("masters/model.safetensors"));
}

TEST(Writer, RefusesHalvesForAFileOfFloats) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kF32, folder / "model", 1_MiB);
  const std::vector<std::uint16_t> values(8);
  expect_error(Errc::kLogic, {"16 bits", "fp32"}, [&] { writer.write_rounded(0, 0, values); });
}

TEST(Writer, IsOverAfterAThreadFailed) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kBf16, folder / "final", 5_GiB, {},
                [](std::size_t, const auto&) { throw Error(Errc::kIo, "on a thread"); });
  expect_error(Errc::kIo, {"on a thread"}, [&] { writer.write(0, 0, flat(model, 0)); });
  expect_error(Errc::kLogic, {"after an error"}, [&] { writer.finish(); });
}

TEST(Writer, SplitsLargeModelsIntoFilesWithAnIndex) {
  const TempFolder folder;
  const shape::Model model = small_model("llama");
  Writer writer(model, DType::kF32, folder / "final", 16_KiB);
  write_all(writer, model);
  writer.finish();
  expect_weights(folder / "final", model, DType::kF32);
  const auto index = nlohmann::json::parse(folder.read("final/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], model.parameters() * 4);
  EXPECT_EQ(index["weight_map"]["model.embed_tokens.weight"], "model-00001-of-00006.safetensors");
  EXPECT_EQ(index["weight_map"]["lm_head.weight"], "model-00006-of-00006.safetensors");
  for (const auto& name : names_in(folder / "final")) {
    if (name.ends_with(".safetensors")) {
      EXPECT_LE(std::filesystem::file_size(folder / ("final/" + name)), 16_KiB + 2_KiB) << name;
    }
  }
}

TEST(Writer, PutsTheTensorsOfAFileInTheOrderOfTheirNames) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kF32, folder / "final");
  write_all(writer, model);
  writer.finish();
  const std::string bytes = folder.read("final/model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  std::vector<std::string> names;  // as they lie there
  const std::size_t data = sizeof length + length;
  for (const Entry& e : parse_header(bytes.substr(8, length), bytes.size() - data, "it")) {
    names.push_back(e.name);
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(names.size(), Reader(folder / "final").names().size());
}

TEST(Writer, IsOverAfterAWriteThatFailed) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kF32, folder / "final");
  {
    const test::FileSizeLimit limit(4096);
    expect_error(Errc::kIo, {"write of"}, [&] { writer.write(0, 0, flat(model, 0)); });
  }
  expect_error(Errc::kLogic, {"write() after an error"}, [&] { writer.write(1, 0, {}); });
  expect_error(Errc::kLogic, {"finish() after an error"}, [&] { writer.finish(); });
}

TEST(Writer, WritesTiedWeightsOnce) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kF32, folder / "final");
  write_all(writer, model);
  writer.finish();
  const Reader reader(folder / "final");
  EXPECT_TRUE(reader.contains("transformer.wte.weight"));
  EXPECT_FALSE(reader.contains("lm_head.weight"));
}

TEST(Writer, WritesAConfigThatDescribesTheModelAndItsDtype) {
  const TempFolder folder;
  const shape::Model model = small_model("llama");
  Writer writer(model, DType::kBf16, folder / "final");
  write_all(writer, model);
  writer.finish();
  const auto config = nlohmann::json::parse(folder.read("final/config.json"));
  EXPECT_EQ(shape::from_config(config), model.decoder);
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
}

TEST(Writer, DroppedBeforeTheEndLeavesNothing) {
  const TempFolder folder;
  const shape::Model model = small_model("llama");
  {
    Writer writer(model, DType::kF32, folder / "deep/final");
    writer.write(0, 0, flat(model, 0));
    EXPECT_FALSE(std::filesystem::exists(folder / "deep/final")) << "not before finish()";
    EXPECT_EQ(names_in(folder / "deep").size(), 1U);
  }
  EXPECT_TRUE(names_in(folder / "deep").empty());
}

TEST(Writer, RefusesToFinishWithAMissingElementAndLeavesNothing) {
  const TempFolder folder;
  const shape::Model model = small_model("llama");
  {
    Writer writer(model, DType::kF32, folder / "final");
    for (std::size_t s = 0; s < model.segments.size(); ++s) {
      const std::vector<float> values = flat(model, s);
      const std::size_t gap = s == 1 ? 1 : 0;
      writer.write(static_cast<int>(s), gap, std::span(values).subspan(gap));
    }
    expect_error(Errc::kLogic,
                 {"element 0 of tensor 'model.layers.0.input_layernorm.weight' was never written"},
                 [&] { writer.finish(); });
    expect_error(Errc::kLogic, {"after an error"}, [&] { writer.finish(); });
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Writer, RefusesToFinishWithoutTheLastElementOfATensor) {
  const TempFolder folder;
  const shape::Model model = small_model("llama");
  Writer writer(model, DType::kF32, folder / "final");
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    const std::vector<float> values = flat(model, s);
    const zero::Placed last = zero::make_layout(model.segments[s]).tensors.back();
    const std::uint64_t count = s == 1 ? last.end() - 1 : values.size();
    writer.write(static_cast<int>(s), 0, std::span(values).first(count));
  }
  expect_error(Errc::kLogic, {"mlp.down_proj.weight' was never written"}, [&] { writer.finish(); });
}

TEST(Writer, DoesNotNeedThePadding) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kF32, folder / "final");
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    const std::vector<float> values = flat(model, s);
    for (const zero::Placed& p : zero::make_layout(model.segments[s]).tensors) {
      writer.write(static_cast<int>(s), p.offset_elems,
                   std::span(values).subspan(p.offset_elems, p.numel));
    }
  }
  writer.finish();
  expect_weights(folder / "final", model, DType::kF32);
}

TEST(Writer, RefusesElementsTwiceOrOutside) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kF32, folder / "final");
  const std::vector<float> values = flat(model, 0);
  writer.write(0, 100, std::span(values).first(50));
  for (const std::uint64_t first : {60U, 100U, 149U}) {
    expect_error(Errc::kLogic, {"overlap", "embedding"},
                 [&] { writer.write(0, first, std::span(values).first(50)); });
  }
  expect_error(Errc::kLogic, {"leave segment 'embedding'"}, [&] { writer.write(0, 1, values); });
  expect_error(Errc::kLogic, {"segment 9"}, [&] { writer.write(9, 0, values); });
  EXPECT_NO_THROW(writer.write(0, 150, std::span(values).first(50))) << "a refusal breaks nothing";
}

TEST(Writer, TouchesNoFolderThatHoldsSomething) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  std::filesystem::create_directories(folder / "final");
  folder.write("final/keep", "x");
  expect_error(Errc::kConfig, {"final", "exists already"},
               [&] { Writer(model, DType::kF32, folder / "final"); });
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"final"}));

  std::filesystem::remove(folder / "final/keep");
  Writer writer(model, DType::kF32, folder / "final/");
  write_all(writer, model);
  folder.write("final/late", "x");  // someone else was faster
  expect_error(Errc::kIo, {"final", "renaming"}, [&] { writer.finish(); });
  EXPECT_EQ(folder.read("final/late"), "x");
}

TEST(Writer, NeedsMoreSpaceThanThereIsAndSaysSoBeforeItStarts) {
  const TempFolder folder;
  shape::Decoder d = small_model("llama").decoder;
  d.vocab = 1 << 24;
  d.hidden = 1 << 20;
  d.heads = d.kv_heads = 1 << 10;
  expect_error(Errc::kBudget, {"needed for weights", "free"},
               [&] { Writer(shape::make_model(d), DType::kBf16, folder / "final"); });
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Writer, IsOverAfterFinish) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  Writer writer(model, DType::kF32, folder / "final");
  write_all(writer, model);
  writer.finish();
  expect_error(Errc::kLogic, {"write() after finish()"}, [&] { writer.write(0, 0, {}); });
}

}  // namespace
}  // namespace sluice::checkpoint
