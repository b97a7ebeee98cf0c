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
  /// A header of this text, filled up to `length`.
  static std::string npy_of(std::string text, std::size_t length) {
    text.resize(length, ' ');
    const auto size = static_cast<std::uint16_t>(length);
    return std::string("\x93NUMPY\x01", 7) + '\0' + bytes_of(std::vector{size}) + text;
  }
  static std::string llmc(std::uint32_t magic, std::uint32_t version, std::uint32_t tokens) {
    std::vector<std::uint32_t> header(256);
    header[0] = magic, header[1] = version, header[2] = tokens;
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

TEST_F(TokenFiles, TheEndingOfANumPyFileMayBeInCapitals) {
  const std::string ids = bytes_of(std::vector<std::uint16_t>{7, 0, 999});
  EXPECT_EQ(open(write("a.NPY", npy("<u2", "(3,)") + ids)).tokens(), 3);
}

TEST_F(TokenFiles, TheKeysOfANumPyHeaderComeInAnyOrder) {
  const std::string ids = bytes_of(std::vector<std::uint32_t>{7, 0, 999});
  for (const char* text : {"{'shape': (3,), 'fortran_order': False, 'descr': '<u4'}",
                           "{'fortran_order':False,'shape':( 3 , ),'descr':'<u4',}\n"}) {
    EXPECT_EQ(all(open(write("a.npy", npy_of(text, 100) + ids))), (Ids{7, 0, 999})) << text;
  }
}

TEST_F(TokenFiles, NumPyHeadersThatAreDamagedAreRefused) {
  const std::string good = "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }";
  const std::string ids = bytes_of(std::vector<std::uint32_t>{7, 0, 999});
  const auto refused = [&](const std::string& text, std::size_t length) {
    const std::string file = write("a.npy", npy_of(text, length) + ids);
    expect_error(Errc::kFormat, {"a.npy", "astype"}, [&] { open(file); });
  };
  for (std::size_t length = 0; length < good.size(); ++length) {
    refused(good.substr(0, length), length);
  }
  for (const char* text :
       {"{'descr': '<u4', 'fortran_order': True, 'shape': (3,), }",
        "{'descr': '<u4', 'shape': (3,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (3), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (-3,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), } (3,)",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<u4', 'fortran_order': False 'shape': (3,)}",
        "{'descr': [('a', '<u4')], 'fortran_order': False, 'shape': (3,), }"}) {
    refused(text, 120);
  }
}

TEST_F(TokenFiles, ALongNumPyHeaderIsRefusedInFewPrintableCharacters) {
  expect_error(Errc::kFormat, {"a.npy", R"(an array "")"},
               [&] { open(write("a.npy", npy_of("", 65000))); });
  const std::string file = write("b.npy", npy_of("\x1b[31m" + std::string(5000, 'x'), 65000));
  const std::string said = test::error_of([&] { open(file); }).what();
  EXPECT_THAT(said, ::testing::HasSubstr('"' + ("?[31m" + std::string(55, 'x')) + '"'));
}

TEST_F(TokenFiles, HeadersOfLlmcThatAreDamagedAreRefused) {
  const std::string ids = bytes_of(std::vector<std::uint32_t>{7, 0, 999});
  const auto refused = [&](const std::string& bytes, const std::vector<std::string>& words) {
    expect_error(Errc::kFormat, words, [&] { open(write("a.bin", bytes)); });
  };
  refused(llmc(20240520, 3, 6) + ids, {"a.bin", "version 3", "have version 1"});
  refused(llmc(20240520, 7, 6) + ids, {"a.bin", "version 7", "have version 1"});
  refused(llmc(20240801, 1, 3) + ids, {"a.bin", "version 1,", "have version 7"});
  refused(llmc(20240520, 1, 0).substr(0, 1022), {"a.bin", "cut short", "1022 bytes"});
  refused(llmc(20240801, 7, 0).substr(0, 4), {"a.bin", "cut short", "4 bytes"});
}

TEST_F(TokenFiles, TheHeaderOfLlmc) {
  const std::string two =
      write("a.bin", llmc(20240520, 1, 3) + bytes_of(std::vector<std::uint16_t>{7, 0, 999}));
  EXPECT_EQ(all(open(two)), (Ids{7, 0, 999}));
  const std::string four =
      write("b.bin", llmc(20240801, 7, 3) + bytes_of(std::vector<std::uint32_t>{7, 0, 999}));
  EXPECT_EQ(all(open(four)), (Ids{7, 0, 999}));
  expect_error(Errc::kFormat, {"b.bin", "4 bytes", "uint16"},
               [&] { open(four, TokenDType::kUint16); });
  expect_error(Errc::kFormat, {"c.bin", "promises 4"},
               [&] { open(write("c.bin", llmc(20240520, 1, 4) + "abcdef")); });
}

}  // namespace
}  // namespace sluice::data
