// Documents: from the four files of a token set to samples.
#include "tests/support/token_set.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <filesystem>

#include "engine/data/dataset.h"
#include "tests/support/errors.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kNone = kNoTarget;

struct Places {
  Ids tokens, targets, positions;
};

class TokenSets : public ::testing::Test {
 protected:
  Dataset open(std::int64_t seq_len, bool packing = true, bool mask_prompt = true) const {
    DataOptions options;
    options.seq_len = seq_len;
    options.packing = packing;
    options.mask_prompt = mask_prompt;
    return {options, {folder_ / "*.bin"}, 100};
  }
  void write(const std::vector<std::uint16_t>& ids, const Ids& ends, const std::string& mask = "",
             const std::string& more = "", const std::string& name = "set") const {
    test::write_token_set(folder_, name, ids, ends, mask, more);
  }
  static Places sample(const Dataset& data, std::int64_t k) {
    SampleBuffer buffer(data.seq_len());
    const Sample s = buffer.view();
    data.sample(k, s);
    return {{s.tokens.begin(), s.tokens.end()},
            {s.targets.begin(), s.targets.end()},
            {s.positions.begin(), s.positions.end()}};
  }

  const test::TempFolder folder_;
};

TEST_F(TokenSets, DocumentsShareASampleAndPositionsBeginAnew) {
  write({10, 11, 12, 20, 21, 30, 31, 32, 33}, {3, 5, 9});
  const Dataset data = open(6);  // 2, 1 and 3 places
  ASSERT_EQ(data.samples(), 1);
  const Places places = sample(data, 0);
  EXPECT_THAT(places.tokens, ElementsAre(10, 11, 20, 30, 31, 32));
  EXPECT_THAT(places.targets, ElementsAre(11, 12, 21, 31, 32, 33));
  EXPECT_THAT(places.positions, ElementsAre(0, 1, 0, 0, 1, 2));
  EXPECT_EQ(data.targets(0), 6);
}

TEST_F(TokenSets, WhatIsLeftOfASampleIsPaddingWithoutTargets) {
  write({10, 11, 12, 20, 21}, {3, 5});
  const Places places = sample(open(6), 0);
  EXPECT_THAT(places.tokens, ElementsAre(10, 11, 20, 0, 0, 0));
  EXPECT_THAT(places.targets, ElementsAre(11, 12, 21, kNone, kNone, kNone));
  EXPECT_THAT(places.positions, ElementsAre(0, 1, 0, 0, 1, 2));
  EXPECT_EQ(open(6).targets(0), 3);
  EXPECT_THAT(open(6).documents()->describe(6), HasSubstr("50.0% of them padding"));
}

TEST_F(TokenSets, WithoutPackingEachDocumentHasASampleOfItsOwn) {
  write({10, 11, 12, 20, 21}, {3, 5});
  const Dataset data = open(3, /*packing=*/false);
  ASSERT_EQ(data.samples(), 2);
  EXPECT_THAT(sample(data, 0).tokens, ElementsAre(10, 11, 0));
  EXPECT_THAT(sample(data, 1).targets, ElementsAre(21, kNone, kNone));
}

TEST_F(TokenSets, OnlyWhatTheMaskMarksIsATarget) {
  write({10, 11, 12, 13, 20, 21, 22}, {4, 7}, {1, 0, 1, 1, 1, 1, 0});
  const Dataset data = open(5);
  EXPECT_THAT(sample(data, 0).tokens, ElementsAre(10, 11, 12, 20, 21));
  EXPECT_THAT(sample(data, 0).targets, ElementsAre(kNone, 12, 13, 21, kNone));
  EXPECT_EQ(data.targets(0), 3);
  EXPECT_EQ(open(5, true, /*mask_prompt=*/false).targets(0), 5);
}

TEST_F(TokenSets, ALongDocumentIsCutAndEachTokenIsATargetOnce) {
  write({10, 11, 12, 13, 14, 15}, {6});
  const Dataset data = open(2);
  ASSERT_EQ(data.samples(), 3);
  EXPECT_THAT(sample(data, 0).tokens, ElementsAre(10, 11));
  EXPECT_THAT(sample(data, 0).targets, ElementsAre(11, 12));
  EXPECT_THAT(sample(data, 1).targets, ElementsAre(13, 14));
  EXPECT_THAT(sample(data, 1).positions, ElementsAre(0, 1));
  EXPECT_THAT(sample(data, 2).targets, ElementsAre(15, kNone));
  EXPECT_EQ(data.documents()->counts().cut, 1);
}

TEST_F(TokenSets, WhatHasNoTargetIsLeftOutAndCounted) {
  write({10, 20, 21, 22, 30, 31}, {1, 4, 6}, {1, 1, 0, 0, 0, 1});
  const Dataset data = open(4);
  ASSERT_EQ(data.samples(), 1);
  EXPECT_THAT(sample(data, 0).tokens, ElementsAre(30, 0, 0, 0));
  EXPECT_EQ(data.documents()->counts().without, 2);
  EXPECT_THAT(data.documents()->describe(4), HasSubstr("2 without a target"));
}

TEST_F(TokenSets, SeveralSetsAreOneRow) {
  write({10, 11, 12}, {3}, {0, 0, 1}, "", "a");
  write({20, 21, 30, 31}, {2, 4}, "", "", "b");
  const Dataset data = open(4);
  ASSERT_EQ(data.samples(), 1);
  EXPECT_THAT(sample(data, 0).tokens, ElementsAre(10, 11, 20, 30));
  EXPECT_THAT(sample(data, 0).targets, ElementsAre(kNone, 12, 21, 31));
}

TEST_F(TokenSets, EveryMarkedTokenIsATargetOnceWithWhatStandsBeforeIt) {
  EXPECT_TRUE(rc::check([this] {
    const auto lengths = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 30));
    const auto seq_len = *rc::gen::inRange<std::int64_t>(1, 20);
    std::vector<std::uint16_t> ids{7, 8};  // of all documents, one has a target
    Ids ends{2};
    std::string mask{1, 1};
    std::multiset<std::pair<std::int64_t, std::int64_t>> expected{{7, 8}}, found;
    for (const int length : lengths) {
      for (int i = 0; i < length; ++i) {
        ids.push_back(*rc::gen::inRange<std::uint16_t>(0, 100));
        mask += static_cast<char>(*rc::gen::inRange(0, 2));
        if (i > 0 && mask.back() == 1) expected.insert({ids[ids.size() - 2], ids.back()});
      }
      ends.push_back(std::ssize(ids));
    }
    write(ids, ends, mask);
    const Dataset data = open(seq_len);
    for (std::int64_t k = 0; k < data.samples(); ++k) {
      const Places places = sample(data, k);
      std::int64_t targets = 0;
      for (std::size_t i = 0; i < places.tokens.size(); ++i) {
        if (places.targets[i] == kNone) continue;
        found.insert({places.tokens[i], places.targets[i]});
        ++targets;
      }
      RC_ASSERT(data.targets(k) == targets);
      RC_ASSERT(targets > 0);
    }
    RC_ASSERT(found == expected);
  }));
}

TEST_F(TokenSets, AMaskOfZerosIsRefused) {
  write({10, 11, 12}, {3}, {0, 0, 0});
  expect_error(Errc::kConfig, {"no token of 1 documents", "data inspect", "mask_prompt"},
               [&] { open(4); });
}

TEST_F(TokenSets, FilesThatDoNotBelongTogetherAreRefused) {
  const std::vector<std::uint16_t> ids{10, 11, 12, 13};
  const auto refused = [&](const std::string& name, const std::string& bytes,
                           const std::vector<std::string>& words) {
    write(ids, {2, 4}, {1, 1, 1, 1});
    folder_.write(name, bytes);
    expect_error(Errc::kFormat, words, [&] { open(2); });
  };
  refused("set.bin", "abcdef", {"set.bin", "6 bytes", "data tokenize"});
  refused("set.mask", "abc", {"set.mask", "3 bytes"});
  refused("set.mask", {1, 1, 1, 7}, {"set.mask", "byte 3 is 7"});
  refused("set.documents", test::bytes_of(Ids{2}), {"set.documents", "8 bytes"});
  refused("set.documents", test::bytes_of(Ids{2, 3}), {"set.documents", "token 3 of 4"});
  refused("set.documents", test::bytes_of(Ids{5, 4}), {"set.documents", "from token 5 to 4"});
  refused("set.documents", test::bytes_of(Ids{0, 4}), {"set.documents", "from token 0 to 0"});
  refused("set.json", R"({"sluice_tokens": 2})", {"set.json", "version 2"});
  refused("set.json", R"({"sluice_tokens": 1})", {"set.json", "dtype"});
  refused("set.json", R"({"sluice_tokens": 1, "dtype": "int8"})", {"set.json", "int8"});
  refused("set.json", R"({"sluice_tokens": 1, "dtype": "uint16", "vocab": -1})",
          {"set.json", "vocab"});
  write(ids, {2, 4}, {1, 1, 1, 1});
  fs::remove(folder_ / "set.documents");
  expect_error(Errc::kIo, {"set.documents"}, [&] { open(2); });
}

TEST_F(TokenSets, AnIdBeyondTheModelsVocabularyIsRefused) {
  write({10, 100, 12}, {3});
  expect_error(Errc::kFormat, {"set.bin", "100"}, [&] { open(2); });
}

TEST_F(TokenSets, BareIdsAndSetsDoNotMix) {
  write({10, 11, 12}, {3});
  folder_.write("a.bin", "abcd");
  expect_error(Errc::kConfig, {"set.bin", "a.bin", "mix"}, [&] { open(2); });
  fs::remove(folder_ / "a.bin");
  folder_.write("z.bin", "abcd");
  expect_error(Errc::kConfig, {"z.bin", "mix"}, [&] { open(2); });
}

TEST_F(TokenSets, ASourceThatHasChangedIsNoticed) {
  folder_.write("chat.jsonl", "12345");
  const auto from = [](int bytes) {
    return fmt::format(R"(, "sources": [{{"path": "chat.jsonl", "bytes": {}, "modified_ns": 7}}])",
                       bytes);
  };
  write({10, 11, 12}, {3}, "", from(4));
  expect_error(Errc::kFormat, {"chat.jsonl", "5 bytes", "4 when", "data tokenize"},
               [&] { open(2); });
  write({10, 11, 12}, {3}, "", from(5));
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  open(2);
  const std::string said =
      ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("was touched since"));
  fs::remove(folder_ / "chat.jsonl");
  EXPECT_EQ(open(2).samples(), 1);
}

}  // namespace
}  // namespace sluice::data
