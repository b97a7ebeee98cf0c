#include "engine/checkpoint/header.h"

#include <gtest/gtest.h>

#include "engine/checkpoint/index.h"
#include "tests/support/errors.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;

void expect_refused(const std::string& json, Bytes data, const std::string& reason) {
  expect_error(Errc::kFormat, {"m.safetensors", reason},
               [&] { parse_header(json, data, "m.safetensors"); });
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Header, IsLengthJsonAndPaddingToEightBytes) {
  const std::string h = make_header({{"b", "BF16", {2, 3}, 0, 12}, {"a", "F32", {}, 12, 16}});
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})";
  const std::size_t padded = (json.size() + 7) / 8 * 8;
  EXPECT_EQ(h.size(), 8 + padded);
  EXPECT_EQ(static_cast<unsigned char>(h[0]), padded);
  EXPECT_EQ(h.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(h.substr(8, json.size()), json);
  EXPECT_EQ(h.substr(8 + json.size()), std::string(padded - json.size(), ' '));
}

TEST(Header, IsReadBack) {
  const std::string h = make_header({{"b", "BF16", {2, 3}, 0, 12}, {"a", "F32", {}, 12, 16}});
  const std::vector<Entry> entries = parse_header(h.substr(8), 16, "m");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_EQ(entries[0].numel(), 6U);
  EXPECT_EQ(entries[1].dtype, "F32");
  EXPECT_EQ(entries[1].numel(), 1U);
  EXPECT_EQ(entries[1].begin, 12U);
}

TEST(Header, ThatIsNoTableOfTensorsIsRefused) {
  expect_refused("", 0, "JSON");
  expect_refused("{", 0, "JSON");
  expect_refused("[]", 0, "no table");
  expect_refused(std::string(100000, '['), 0, "nested too deep");
  expect_refused(R"({"a":7})", 0, "'a' is described by no table");
  expect_refused(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4, "has no dtype");
  expect_refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "has no shape");
  expect_refused(R"({"a":{"dtype":"F32","shape":[]}})", 4, "has no data_offsets");
  expect_refused("{\"a\":" + tensor("F7", "[1]", "[0,4]") + "}", 4, "unknown dtype 'F7'");
  expect_refused("{\"a\":" + tensor("F32", "[1.5]", "[0,4]") + "}", 4, "not whole");
  expect_refused("{\"a\":" + tensor("F32", "[-1]", "[0,4]") + "}", 4, "not whole");
  expect_refused("{\"a\":" + tensor("F32", "[1]", "[0]") + "}", 4, "not two numbers");
}

TEST(Header, WhoseTensorsDoNotTileTheDataIsRefused) {
  const std::string a = "{\"a\":" + tensor("F32", "[2]", "[0,8]");
  expect_refused("{\"a\":" + tensor("F32", "[3]", "[0,8]") + "}", 8, "another size");
  expect_refused("{\"a\":" + tensor("F32", "[2]", "[8,0]") + "}", 8, "ends before");
  expect_refused(a + "}", 7, "past the end");
  expect_refused(a + "}", 9, "end at byte 8");
  expect_refused(a + ",\"b\":" + tensor("F32", "[1]", "[4,8]") + "}", 8, "overlaps");
  expect_refused(a + ",\"b\":" + tensor("F32", "[1]", "[12,16]") + "}", 16, "hole");
  expect_refused("{\"a\":" + tensor("F32", "[4611686018427387904,4]", "[0,0]") + "}", 0,
                 "too large");
}

TEST(Index, IsReadBackAndMayNotPointOutsideItsFolder) {
  const WeightMap weights = {{"a", shard_name(0, 2)}, {"b", shard_name(1, 2)}};
  EXPECT_EQ(weights.at("b"), "model-00002-of-00002.safetensors");
  EXPECT_EQ(parse_index(make_index(weights, 12), "i"), weights);
  for (const char* file : {"\"../secret\"", "\"/etc/passwd\"", "\"\"", "7"}) {
    expect_error(Errc::kFormat, {"tensor 'a'"},
                 [&] { parse_index(R"({"weight_map":{"a":)" + std::string(file) + "}}", "i"); });
  }
  expect_error(Errc::kFormat, {"weight_map"}, [&] { parse_index("{}", "i"); });
}

}  // namespace
}  // namespace sluice::checkpoint
