#include "engine/checkpoint/reader.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <filesystem>

#include "engine/checkpoint/index.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::TempFolder;

std::string file_of(const std::vector<Entry>& entries, std::size_t data_bytes) {
  std::string bytes = make_header(entries);
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<char>(i * 37));
  return bytes;
}

void expect_unreadable(const std::filesystem::path& path, const std::string& reason) {
  expect_error(Errc::kFormat, {path.filename().string(), reason}, [&] { Reader{path}; });
}

TEST(Reader, ReadsPartsOfATensor) {
  const TempFolder folder;
  const std::vector<float> values = {1.0F, -2.0F, 3.5F, 1e30F};
  std::string bytes = make_header({{"a", "F32", {2, 2}, 0, 16}});
  bytes.append(reinterpret_cast<const char*>(values.data()), 16);
  folder.write("m.safetensors", bytes);
  const Reader reader(folder / "m.safetensors");
  EXPECT_EQ(reader.read("a"), values);
  std::vector<float> part(2);
  reader.read("a", 1, part);
  EXPECT_EQ(part, (std::vector<float>{-2.0F, 3.5F}));
  expect_error(Errc::kLogic, {"leave tensor 'a' of 4"}, [&] { reader.read("a", 3, part); });
  expect_error(Errc::kFormat, {"no tensor 'b'"}, [&] { reader.read("b"); });
}

TEST(Reader, ListsButDoesNotConvertOtherDtypes) {
  const TempFolder folder;
  folder.write("m.safetensors", file_of({{"a", "F64", {3}, 0, 24}}, 24));
  const Reader reader(folder / "m.safetensors");
  EXPECT_EQ(reader.entry("a").dtype, "F64");
  expect_error(Errc::kFormat, {"'a' is F64", "BF16"}, [&] { reader.read("a"); });
}

TEST(Reader, ReadsHalfPrecision) {
  const TempFolder folder;
  const std::vector<std::uint16_t> bits = {0x3c00, 0xc100, 0x0001};
  std::string bytes = make_header({{"a", "F16", {3}, 0, 6}});
  bytes.append(reinterpret_cast<const char*>(bits.data()), 6);
  folder.write("m.safetensors", bytes);
  EXPECT_EQ(Reader(folder / "m.safetensors").read("a"),
            (std::vector<float>{1.0F, -2.5F, 0x1p-24F}));
}

TEST(Reader, SaysThatAPickleIsNone) {
  const TempFolder folder;
  folder.write("pytorch_model.bin", "PK");
  expect_error(Errc::kFormat, {"pytorch_model.bin", "safetensors"}, [&] { Reader{folder.path()}; });
}

TEST(Reader, RefusesFilesThatAreNoSafetensors) {
  const TempFolder folder;
  folder.write("short", "1234567");
  expect_unreadable(folder / "short", "7 bytes");
  folder.write("pickle", "\x80\x02}q\x01X\x05\x01\x02\x03\x04");
  expect_unreadable(folder / "pickle", "claims a header of");
  const std::string good = file_of({{"a", "F32", {3}, 0, 12}}, 12);
  folder.write("cut", good.substr(0, good.size() - 1));
  expect_unreadable(folder / "cut", "past the end");
  folder.write("longer", good + "x");
  expect_unreadable(folder / "longer", "has 13");
  expect_error(Errc::kIo, {"nothing"}, [&] { Reader{folder / "nothing"}; });
  expect_error(Errc::kIo, {"model.safetensors"}, [&] { Reader{folder.path()}; });
}

TEST(Reader, HoldsTheIndexAgainstTheFiles) {
  const TempFolder folder;
  folder.write("x", file_of({{"a", "F32", {1}, 0, 4}, {"b", "F32", {1}, 4, 8}}, 8));
  folder.write("y", file_of({{"c", "F32", {1}, 0, 4}}, 4));
  const auto index = [&](const WeightMap& weights) {
    folder.write(std::string(kIndexName), make_index(weights, 12));
  };
  index({{"a", "x"}, {"b", "x"}, {"c", "y"}});
  EXPECT_EQ(Reader(folder.path()).names(), (std::vector<std::string>{"a", "b", "c"}));
  index({{"a", "x"}, {"b", "y"}, {"c", "y"}});
  expect_error(Errc::kFormat, {"'b' is not in y"}, [&] { Reader{folder.path()}; });
  index({{"a", "x"}, {"c", "y"}});
  expect_error(Errc::kFormat, {"does not list tensor 'b'"}, [&] { Reader{folder.path()}; });
  index({{"a", "x"}, {"b", "x"}, {"c", "z"}});
  expect_error(Errc::kIo, {"z"}, [&] { Reader{folder.path()}; });
  folder.write("y", file_of({{"a", "F32", {1}, 0, 4}}, 4));
  index({{"a", "x"}, {"b", "x"}, {"c", "y"}});
  expect_error(Errc::kFormat, {"'a' is in another file too"}, [&] { Reader{folder.path()}; });
}

/// Reads all there is. Whatever the file holds, the only way out is an Error.
void read_everything(const std::filesystem::path& path) {
  try {
    const Reader reader(path);
    for (const std::string& name : reader.names()) {
      if (dtype_of(reader.entry(name).dtype)) reader.read(name);
    }
  } catch (const Error& e) {
    RC_ASSERT(e.code == Errc::kFormat);
  }
}

TEST(Reader, SurvivesFlippedBytes) {
  const TempFolder folder;
  const std::string good = file_of(
      {{"a", "F32", {3, 2}, 0, 24}, {"b", "BF16", {5}, 24, 34}, {"c", "U8", {0}, 34, 34}}, 34);
  EXPECT_TRUE(rc::check([&] {
    std::string bytes = good;
    const int flips = *rc::gen::inRange(1, 6);
    for (int i = 0; i < flips; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size() - 34);
      bytes[at] = static_cast<char>(*rc::gen::inRange(0, 256));
    }
    folder.write("m", bytes);
    read_everything(folder / "m");
  }));
}

TEST(Reader, SurvivesChangedNumbersAndCutFiles) {
  const TempFolder folder;
  const std::string good = file_of({{"a", "F32", {3, 2}, 0, 24}, {"b", "BF16", {5}, 24, 34}}, 34);
  EXPECT_TRUE(rc::check([&] {
    std::string bytes = good;
    const int edits = *rc::gen::inRange(1, 8);
    for (int i = 0; i < edits; ++i) {  // the digits are where the danger is
      const auto at = *rc::gen::inRange<std::size_t>(8, bytes.size() - 34);
      if (bytes[at] >= '0' && bytes[at] <= '9')
        bytes[at] = *rc::gen::elementOf(std::string("0123456789-.e"));
    }
    bytes.resize(*rc::gen::inRange<std::size_t>(bytes.size() - 40, bytes.size() + 1));
    folder.write("m", bytes);
    read_everything(folder / "m");
  }));
}

}  // namespace
}  // namespace sluice::checkpoint
