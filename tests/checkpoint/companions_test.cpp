#include "engine/checkpoint/companions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/checkpoint/safetensors.h"
#include "engine/shape/presets.h"
#include "engine/zero/layout.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::TempFolder;

TEST(Companions, GoOnIntoTheNextFolder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "from");
  const nlohmann::json config = {{"model_type", "gpt2"}, {"made_by", "hand"}, {"dtype", "float16"}};
  folder.write("from/config.json", config.dump());
  folder.write("from/tokenizer.json", std::string(3'000'000, 't'));
  folder.write("from/merges.txt", "");
  folder.write("from/model.safetensors", "weights");
  const Companions companions = read_companions(folder / "from");
  EXPECT_EQ(*companions.config, config);

  shape::Decoder d = shape::find_preset("tiny");
  d.layers = 1;
  const shape::Model model = shape::make_model(d);
  Writer writer(model, DType::kBf16, folder / "to", 5_GiB, companions);
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    const std::vector<float> zeros(zero::make_layout(model.segments[s]).elems);
    writer.write(static_cast<int>(s), 0, zeros);
  }
  writer.finish();

  nlohmann::json expected = config;
  expected["dtype"] = expected["torch_dtype"] = "bfloat16";
  EXPECT_EQ(nlohmann::json::parse(folder.read("to/config.json")), expected);
  EXPECT_EQ(folder.read("to/tokenizer.json"), folder.read("from/tokenizer.json"));
  EXPECT_EQ(folder.read("to/merges.txt"), "");
  EXPECT_GT(Reader(folder / "to").names().size(), 1U);
}

TEST(Companions, OfAConfigAloneAreNone) {
  const TempFolder folder;
  folder.write("config.json", R"({"model_type": "gpt2"})");
  folder.write("tokenizer.json", "{}");
  EXPECT_TRUE(read_companions(folder / "config.json").files.empty());
  EXPECT_EQ(read_companions(folder.path()).files.size(), 1U);
}

TEST(Companions, NeedAConfigThatCanBeRead) {
  const TempFolder folder;
  expect_error(Errc::kConfig, {"config.json is no file"}, [&] { read_companions(folder.path()); });
  folder.write("config.json", R"({"model_type": )");
  expect_error(Errc::kFormat, {"config.json"}, [&] { read_companions(folder.path()); });
}

}  // namespace
}  // namespace sluice::checkpoint
