#include "engine/checkpoint/reader.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  expect_error(Errc::kFormat, {"'a' is F64", "BF16"}, [&] { reader.check_readable("a"); });
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

TEST(Reader, WidensMoreThanItReadsAtATime) {
  const TempFolder folder;
  constexpr std::int64_t kElems = (std::int64_t{5} << 19) + 77;
  std::string bytes = make_header({{"a", "BF16", {kElems}, 0, 2 * kElems}});
  std::vector<float> expected;
  for (std::int64_t i = 0; i < kElems; ++i) {
    const Bf16 value = {static_cast<std::uint16_t>(i % 0x7f00)};
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    expected.push_back(to_float(value));
  }
  folder.write("m", bytes);
  const Reader reader(folder / "m");
  EXPECT_TRUE(reader.read("a") == expected);
  std::vector<float> part(expected.size() - 5);
  reader.read("a", 3, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + 3));
}

TEST(Reader, SaysThatAPickleIsNone) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "all.pth"}) {
    const TempFolder folder;
    folder.write(name, "PK");
    expect_error(Errc::kFormat, {name, "is a pickle of torch", "safetensors"},
                 [&] { Reader{folder.path()}; });
  }
  const TempFolder folder;
  folder.write("archive", std::string("PK\3\4\0\0\0\0\0\0", 10));
  expect_unreadable(folder / "archive", "is a pickle of torch");
  folder.write("older", "\x80\x02}q\x01X\x05\x01\x02\x03\x04");
  expect_unreadable(folder / "older", "is a pickle of torch");
  // A header may be as long as a pickle begins.
  const std::string name(640 - std::string(R"({"__metadata__":{"format":"pt"},"":{"dtype":"F32",)"
                                           R"("shape":[1],"data_offsets":[0,4]}})")
                                   .size(),
                         'a');
  const std::string bytes = file_of({{name, "F32", {1}, 0, 4}}, 4);
  ASSERT_EQ(bytes.substr(0, 2), "\x80\x02");
  folder.write("safetensors", bytes);
  EXPECT_TRUE(Reader(folder / "safetensors").contains(name));
}

TEST(Reader, RefusesFilesThatAreNoSafetensors) {
  const TempFolder folder;
  folder.write("short", "1234567");
  expect_unreadable(folder / "short", "7 bytes");
  folder.write("text", "no safetensors, and no pickle");
  expect_unreadable(folder / "text", "claims a header of");
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
  expect_error(Errc::kIo, {std::string(kIndexName), "names z"}, [&] { Reader{folder.path()}; });
  folder.write("y", file_of({{"a", "F32", {1}, 0, 4}}, 4));
  index({{"a", "x"}, {"b", "x"}, {"c", "y"}});
  expect_error(Errc::kFormat, {"'a' is in another file too"}, [&] { Reader{folder.path()}; });
}

}  // namespace
}  // namespace sluice::checkpoint
