#include "engine/data/dataset.h"

#include <rapidcheck.h>

#include <filesystem>
#include <limits>

#include "tests/data/folder.h"
#include "tests/support/errors.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using Ids = std::vector<std::int64_t>;

class DatasetFiles : public Folder {
 protected:
  static DataOptions options(std::int64_t seq_len) {
    DataOptions made;
    made.seq_len = seq_len;
    return made;
  }
  /// The tokens of a stream's sample, its last target at the end.
  static Ids sample(const Dataset& data, std::int64_t k) {
    SampleBuffer buffer(data.seq_len());
    const Sample view = buffer.view();
    data.sample(k, view);
    Ids tokens(view.tokens.begin(), view.tokens.end());
    tokens.push_back(view.targets.back());
    EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), view.targets.begin()));
    for (std::size_t i = 0; i < view.positions.size(); ++i) {
      EXPECT_EQ(view.positions[i], static_cast<std::int64_t>(i));
    }
    EXPECT_EQ(data.targets(k), data.seq_len());
    return tokens;
  }
};

TEST_F(DatasetFiles, SamplesOverlapByOneTokenAndCrossFiles) {
  write("b.txt", "cdef");
  write("a.txt", "ab");
  write("c.txt", "gh");
  const Dataset data(options(3), {path("*.txt")}, 256);
  EXPECT_EQ(data.tokens(), 8);
  EXPECT_EQ(data.samples(), 2);
  EXPECT_EQ(sample(data, 0), (Ids{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(sample(data, 1), (Ids{'d', 'e', 'f', 'g'}));
}

TEST_F(DatasetFiles, SampleSpansManyTinyAndEmptyFiles) {
  for (const char* name : {"a", "b", "c", "d", "e"}) write(name, name);
  write("bb", "");
  write("zz", "");
  const Dataset data(options(4), {path("*")}, 256);
  EXPECT_EQ(data.files().size(), 5U);
  EXPECT_EQ(sample(data, 0), (Ids{'a', 'b', 'c', 'd', 'e'}));
}

TEST_F(DatasetFiles, AnySplitIntoFilesGivesTheSameSamples) {
  EXPECT_TRUE(rc::check([this] {
    const auto bytes = *rc::gen::container<std::string>(60, rc::gen::arbitrary<char>());
    const auto seq_len = *rc::gen::inRange<std::int64_t>(1, 60);
    fs::remove_all(path("split"));
    write("split/30", "");
    for (std::size_t at = 0, file = 10; at < bytes.size(); ++file) {
      const auto n = *rc::gen::inRange<std::size_t>(1, 25);
      write("split/" + std::to_string(file), bytes.substr(at, n));
      at += n;
    }
    const Dataset data(options(seq_len), {path("split/*")}, 256);
    RC_ASSERT(data.samples() == 59 / seq_len);
    for (std::int64_t k = 0; k < data.samples(); ++k) {
      const Ids tokens = sample(data, k);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto at = static_cast<std::size_t>(k * seq_len) + i;
        RC_ASSERT(tokens[i] == static_cast<unsigned char>(bytes[at]));
      }
    }
  }));
}

TEST_F(DatasetFiles, BytesAboveAsciiArePositiveIds) {
  write("a.txt", "\xff\x80\x7f");
  EXPECT_EQ(sample(Dataset(options(2), {path("a.txt")}, 300), 0), (Ids{255, 128, 127}));
}

TEST_F(DatasetFiles, TokenFilesAreLittleEndianAndOfTheWidthOfTheVocabulary) {
  write_ids<std::uint16_t>("small.bin", {1, 0x0203, 65535});
  write_ids<std::uint32_t>("large.bin", {1, 0x00020304, 99999});
  EXPECT_EQ(sample(Dataset(options(2), {path("small.bin")}, 65536), 0), (Ids{1, 0x0203, 65535}));
  EXPECT_EQ(sample(Dataset(options(2), {path("large.bin")}, 150000), 0), (Ids{1, 0x020304, 99999}));
}

TEST_F(DatasetFiles, WidthAndFormatCanBeSet) {
  DataOptions set = options(2);
  set.token_dtype = TokenDType::kUint32;
  set.format = DataFormat::kTokens;
  write_ids<std::uint32_t>("tokens.dat", {4, 5, 6});
  EXPECT_EQ(sample(Dataset(set, {path("tokens.dat")}, 100), 0), (Ids{4, 5, 6}));
  set.format = DataFormat::kText;
  EXPECT_EQ(sample(Dataset(set, {path("tokens.dat")}, 256), 1), (Ids{0, 0, 5}));
}

TEST_F(DatasetFiles, TextHasAVocabularyOfAtMostAllBytes) {
  write("a.txt", "abc");
  EXPECT_EQ(Dataset(options(1), {path("a.txt")}, 50304).vocab(), 256);
  EXPECT_EQ(Dataset(options(1), {path("a.txt")}, 128).vocab(), 128);
}

TEST_F(DatasetFiles, OneSampleMoreThanTheTailIsAllOrNothing) {
  write("a.txt", "abcdef");
  EXPECT_EQ(Dataset(options(5), {path("a.txt")}, 256).samples(), 1);
  expect_error(Errc::kConfig, {"needs 7", "hold 6", "data.seq_len"},
               [&] { Dataset(options(6), {path("a.txt")}, 256); });
}

TEST_F(DatasetFiles, FormatsThatAreNeitherTextNorTokensAreRefusedByName) {
  for (const char* name : {"a.npz", "a.mask", "a.gz", "A.GZ", "a.safetensors", "a.pt", "a.pth",
                           "a.ckpt", "a.xz", "a.bz2", "a.zip", "a.tar", "a.gguf", "a.pdf"}) {
    write(name, "abcdef");
    expect_error(Errc::kConfig, {name, "data.format: text"},
                 [&] { Dataset(options(2), {path(name)}, 256); });
  }
  for (const char* name : {"a.jsonl", "a.json", "a.parquet", "a.ndjson", "a.JSONL"}) {
    write(name, "abcdef");
    expect_error(Errc::kConfig, {name, "sluice data tokenize", "data.format: text"},
                 [&] { Dataset(options(2), {path(name)}, 256); });
  }
  DataOptions text = options(2);
  text.format = DataFormat::kText;
  EXPECT_EQ(Dataset(text, {path("a.jsonl")}, 256).tokens(), 6);
}

TEST_F(DatasetFiles, AnEndingInCapitalsIsTheSameEnding) {
  write_ids<std::uint16_t>("a.BIN", {4, 5, 6});
  EXPECT_EQ(sample(Dataset(options(2), {path("a.BIN")}, 100), 0), (Ids{4, 5, 6}));
}

TEST_F(DatasetFiles, TextAndTokensDoNotMix) {
  write("a.txt", "abcdef");
  write("b.bin", "abcdef");
  expect_error(Errc::kConfig, {"a.txt", "b.bin", "mix"},
               [&] { Dataset(options(2), {path("*")}, 256); });
}

TEST_F(DatasetFiles, TokenFileOfAnOddSizeIsRefused) {
  write("a.bin", "12345");
  expect_error(Errc::kFormat, {"a.bin", "5 bytes", "uint16"},
               [&] { Dataset(options(2), {path("a.bin")}, 256); });
  write("b.bin", "");
  expect_error(Errc::kFormat, {"b.bin", "0 bytes"},
               [&] { Dataset(options(2), {path("b.bin")}, 256); });
}

TEST_F(DatasetFiles, IdBeyondTheVocabularyIsFoundAtTheStart) {
  std::vector<std::uint16_t> ids(200'000, 7);
  ids[150'001] = 50257;
  write_ids("a.bin", ids);
  expect_error(Errc::kFormat, {"a.bin", "50257", "300002"},
               [&] { Dataset(options(2), {path("a.bin")}, 50257); });
  EXPECT_EQ(Dataset(options(2), {path("a.bin")}, 50258).tokens(), 200'000);
}

TEST_F(DatasetFiles, IdBeyondTheVocabularyIsFoundInTheSampleOfHugeData) {
  DataOptions bytes = options(3);
  bytes.format = DataFormat::kText;
  const std::string file = write("huge.txt", "");
  fs::resize_file(file, kScanLimit);  // a hole: takes no space
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(10).put('z');
  const Dataset data(bytes, {file}, 100);
  EXPECT_EQ(sample(data, 0), (Ids{0, 0, 0, 0}));
  expect_error(Errc::kFormat, {"huge.txt", "122", "byte 10"}, [&] { sample(data, 3); });
}

TEST_F(DatasetFiles, UnsignedIdsNeverTurnNegative) {
  write_ids<std::uint32_t>("a.bin", {0xffffffffU, 1});
  expect_error(Errc::kFormat, {"4294967295", "byte 0"},
               [&] { Dataset(options(1), {path("a.bin")}, 100'000); });
}

TEST_F(DatasetFiles, FileCutShortWhileInUseIsAnErrorAndNoSignal) {
  const std::string file = write("a.txt", std::string(10'000, 'x'));
  const Dataset data(options(100), {file}, 256);
  fs::resize_file(file, 5'050);
  EXPECT_EQ(sample(data, 0).back(), 'x');
  expect_error(Errc::kIo, {"a.txt", "5050", "cut short"}, [&] { sample(data, 50); });
  fs::remove(file);
  expect_error(Errc::kIo, {"a.txt", "opened"}, [&] { sample(data, 0); });
}

TEST_F(DatasetFiles, MoreFilesThanDescriptorsAreFine) {
  for (int i = 0; i < 3000; ++i) write("many/" + std::to_string(10000 + i), "x");
  const Dataset data(options(2999), {path("many/*")}, 256);
  EXPECT_EQ(sample(data, 0).size(), 3000U);
}

TEST_F(DatasetFiles, MisuseIsRefused) {
  write("a.txt", "abcdef");
  const Dataset data(options(2), {path("a.txt")}, 256);
  SampleBuffer two(2);
  SampleBuffer three(3);
  expect_error(Errc::kLogic, {"3 places"}, [&] { data.sample(0, three.view()); });
  expect_error(Errc::kLogic, {"sample 2"}, [&] { data.sample(2, two.view()); });
  expect_error(Errc::kLogic, {"sample -1"}, [&] { data.sample(-1, two.view()); });
  expect_error(Errc::kConfig, {"data.seq_len"}, [&] { Dataset(options(0), {path("a.txt")}, 256); });
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  expect_error(Errc::kConfig, {"hold 6"}, [&] { Dataset(options(kMost), {path("a.txt")}, 256); });
}

}  // namespace
}  // namespace sluice::data
