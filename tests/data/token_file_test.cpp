// Token files with a header of their own.
#include "engine/data/token_file.h"

#include "tests/data/folder.h"
#include "tests/support/errors.h"
#include "tests/support/token_set.h"

namespace sluice::data {
namespace {

using test::bytes_of;
using test::expect_error;
using Ids = std::vector<std::int64_t>;

class TokenFiles : public Folder {
 protected:
  static TokenFile open(const std::string& path, TokenDType dtype = TokenDType::kAuto) {
    return {path, DataFormat::kTokens, dtype, 1000};
  }
  static Ids all(const TokenFile& file) {
    Ids ids(static_cast<std::size_t>(file.tokens()));
    file.read(0, ids);
    return ids;
  }
  /// As numpy.save writes it: the header filled up to a multiple of 64.
  static std::string npy(const std::string& type, const std::string& shape, char version = 1) {
    std::string text =
        "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    const std::size_t before = version == 1 ? 10 : 12;
    while ((before + text.size() + 1) % 64 != 0) text += ' ';
    text += '\n';
    const auto length = static_cast<std::uint32_t>(text.size());
    const std::string size = bytes_of(std::vector{length}).substr(0, version == 1 ? 2 : 4);
    return std::string("\x93NUMPY") + version + '\0' + size + text;
  }
  static std::string llmc(std::uint32_t magic, std::uint32_t tokens) {
    std::vector<std::uint32_t> header(256);
    header[0] = magic, header[1] = 1, header[2] = tokens;
    return bytes_of(header);
  }
};

TEST_F(TokenFiles, NumPyArraysOfEachType) {
  const auto expect = [&](const std::string& bytes) {
    EXPECT_EQ(all(open(write("a.npy", bytes))), (Ids{7, 0, 999})) << bytes.substr(10, 30);
  };
  expect(npy("<u2", "(3,)") + bytes_of(std::vector<std::uint16_t>{7, 0, 999}));
  expect(npy("<u4", "(3,)") + bytes_of(std::vector<std::uint32_t>{7, 0, 999}));
  expect(npy("<i4", "(3,)") + bytes_of(std::vector<std::uint32_t>{7, 0, 999}));
  expect(npy("<i8", "(3,)") + bytes_of(std::vector<std::uint64_t>{7, 0, 999}));
  expect(npy("<i8", "(3,)", 2) + bytes_of(std::vector<std::uint64_t>{7, 0, 999}));
}

TEST_F(TokenFiles, NegativeIdsAreBeyondAnyVocabulary) {
  const std::string file =
      write("a.npy", npy("<i4", "(2,)") + bytes_of(std::vector<std::uint32_t>{1, 0xffffffffU}));
  expect_error(Errc::kFormat, {"a.npy", "id -1", "byte 132"}, [&] { open(file).check(); });
}

TEST_F(TokenFiles, OtherArraysAreRefused) {
  for (const auto& [type, shape] : std::vector<std::pair<std::string, std::string>>{
           {"<f4", "(2,)"}, {">u2", "(2,)"}, {"<u2", "(1, 2)"}, {"|u1", "(4,)"}, {"<u2", "()"}}) {
    const std::string file = write("a.npy", npy(type, shape) + "abcd");
    expect_error(Errc::kFormat, {"a.npy", type, "astype"}, [&] { open(file); });
  }
  for (const std::string& bytes :
       {std::string("abcdefghijklmnop"), std::string("\x93NUMPY"), npy("<u2", "(2,)").substr(0, 50),
        std::string("\x93NUMPY\x09") + std::string(60, '\0')}) {
    expect_error(Errc::kFormat, {"a.npy", "does not begin"}, [&] { open(write("a.npy", bytes)); });
  }
  expect_error(Errc::kFormat, {"promises 3", "2 bytes"},
               [&] { open(write("a.npy", npy("<u2", "(3,)") + "ab")); });
}

TEST_F(TokenFiles, TheHeaderOfLlmc) {
  const std::string two =
      write("a.bin", llmc(20240520, 3) + bytes_of(std::vector<std::uint16_t>{7, 0, 999}));
  EXPECT_EQ(all(open(two)), (Ids{7, 0, 999}));
  const std::string four =
      write("b.bin", llmc(20240801, 3) + bytes_of(std::vector<std::uint32_t>{7, 0, 999}));
  EXPECT_EQ(all(open(four)), (Ids{7, 0, 999}));
  expect_error(Errc::kFormat, {"b.bin", "4 bytes", "uint16"},
               [&] { open(four, TokenDType::kUint16); });
  expect_error(Errc::kFormat, {"c.bin", "promises 4"},
               [&] { open(write("c.bin", llmc(20240520, 4) + "abcdef")); });
}

}  // namespace
}  // namespace sluice::data
