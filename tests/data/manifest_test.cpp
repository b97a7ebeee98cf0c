// Token sets that are not complete, damaged, or made to do harm.
#include <gmock/gmock.h>

#include <filesystem>

#include "engine/data/dataset.h"
#include "tests/data/folder.h"
#include "tests/support/errors.h"
#include "tests/support/token_set.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class Manifests : public ::testing::Test {
 protected:
  Dataset open(bool mask_prompt = true) const {
    DataOptions options;
    options.seq_len = 4;
    options.mask_prompt = mask_prompt;
    return {options, {folder_ / "*.[bB]*"}, 100};
  }
  void refused(Errc code, const Words& words) const {
    expect_error(code, words, [&] { open(); });
  }
  /// Documents of 3 and 1 tokens; of their targets, at most 2, `mask` marks some.
  void write(const std::string& mask = "", const std::string& more = "",
             const std::string& name = "set") const {
    test::write_token_set(folder_, name, {10, 11, 12, 20}, {3, 4}, mask, more);
  }
  /// The manifest of write(), with one value put in the place of another.
  void replace(const std::string& old, const std::string& now) const {
    std::string text = folder_.read("set.json");
    const std::size_t at = text.find(old);
    ASSERT_NE(at, std::string::npos) << old;
    folder_.write("set.json", text.replace(at, old.size(), now));
  }

  const test::TempFolder folder_;
};

TEST_F(Manifests, ASetWithoutItsManifestIsNotBareIds) {
  write({0, 1, 1, 1});
  fs::remove(folder_ / "set.json");
  refused(Errc::kFormat, {"set.documents is there", "set.json is not", "not complete", "tokenize"});
  fs::remove(folder_ / "set.documents");
  refused(Errc::kFormat, {"set.mask is there", "set.json is not"});
  fs::remove(folder_ / "set.mask");
  folder_.write("set.bin", std::string(10, '\1'));
  expect_error(Errc::kFormat, {"257"}, [&] { open(); });  // bare ids
}

TEST_F(Manifests, ASetWhoseNameIsInCapitalsIsOne) {
  write();
  fs::rename(folder_ / "set.bin", folder_ / "set.BIN");
  EXPECT_NE(open().documents(), nullptr);
}

TEST_F(Manifests, MaskedIsTrueOrFalseAndTheMaskIsThereOrNot) {
  for (const char* bad : {"1", "\"yes\"", "null", "[]"}) {
    write({0, 1, 1, 1});
    replace("\"masked\": true", fmt::format("\"masked\": {}", bad));
    refused(Errc::kFormat, {"set.json", "'masked' is neither true nor false"});
  }
  replace("\"masked\"", "\"missing\"");
  refused(Errc::kFormat, {"set.json", "'masked' is neither true nor false"});
  write({0, 1, 1, 1});
  replace("\"masked\": true", "\"masked\": false");
  refused(Errc::kFormat, {"set.mask", "set.json", "data tokenize"});
}

TEST_F(Manifests, TargetsAreWhatTheMasksMark) {
  write({1, 0, 1, 1});
  EXPECT_EQ(open().documents()->counts().targets, 1);
  folder_.write("set.mask", {1, 1, 1, 1});
  refused(Errc::kFormat, {"set.bin", "mark 2 targets", "say 1", "data tokenize"});
  EXPECT_EQ(open(/*mask_prompt=*/false).documents()->counts().targets, 2);
  write({1, 1, 1, 1}, "", "other");  // the sum of both is held against both
  refused(Errc::kFormat, {"2 token set(s)", "mark 4 targets", "say 3"});
}

TEST_F(Manifests, TargetsOfASetWithoutAMaskAreAllButFirsts) {
  write();
  EXPECT_EQ(open().documents()->counts().targets, 2);
  replace("\"targets\": 2", "\"targets\": 1");
  refused(Errc::kFormat, {"mark 2 targets", "say 1"});
}

TEST_F(Manifests, TokenizersDoNotMix) {
  const auto sum = [](const char* text) {
    return fmt::format(R"(, "tokenizer_sha256": {})", text);
  };
  write("", "", "a");
  EXPECT_EQ(open().tokenizer_sum(), "");
  write("", sum("\"one\""), "b");
  write("", "", "c");
  write("", sum("\"one\""), "d");
  EXPECT_EQ(open().tokenizer_sum(), "one");
  write("", sum("\"two\""), "e");
  refused(Errc::kConfig, {"d.bin", "e.bin", "different tokenizers"});
  write("", sum("7"), "e");
  refused(Errc::kFormat, {"e.json", "tokenizer_sha256"});
}

TEST_F(Manifests, ADamagedOneIsNeverMovedOutOfTheWay) {
  for (const char* text : {"", "{", "[]", "{}", "{\"sluice_tokens\": 1", "\xff\xfe", "1e999"}) {
    write();
    folder_.write("set.json", text);
    const std::string said = test::error_of([&] { open(); }).what();
    EXPECT_THAT(said, HasSubstr("set.json: is damaged")) << text;
    EXPECT_THAT(said, HasSubstr("data tokenize")) << text;
    EXPECT_THAT(said, Not(HasSubstr("bare"))) << text;
  }
  fs::remove(folder_ / "set.documents");
  refused(Errc::kFormat, {"set.json", "no manifest", "bare ids"});
  folder_.write("set.json", std::string(9, '['));
  refused(Errc::kFormat, {"set.json", "nested", "bare ids"});
}

TEST_F(Manifests, HugeAndDeepOnesAreRefused) {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  for (const char* key : {"sources", "more"}) {
    write("", fmt::format(R"(, "{}": {})", key, deep));
    refused(Errc::kFormat, {"set.json", "nested", "data tokenize"});
  }
  write("", R"(, "more": [[[[[[[7]]]]]]])");  // 8 with the manifest itself
  EXPECT_EQ(open().samples(), 1);
  write("", R"(, "more": [[[[[[[[7]]]]]]]])");
  refused(Errc::kFormat, {"set.json", "nested more than 8 deep"});
  folder_.write("set.json", deep);
  refused(Errc::kFormat, {"set.json", "nested"});
  fs::resize_file(folder_ / "set.json", (64 << 20) + 1);  // a hole
  refused(Errc::kFormat, {"set.json", "67108865 bytes", "64 MiB"});
}

TEST_F(Manifests, SourcesAreAListOfFiles) {
  for (const char* bad : {"7", "{}", "null", "\"chat.jsonl\""}) {
    write("", fmt::format(R"(, "sources": {})", bad));
    refused(Errc::kFormat, {"set.json", "'sources' is no list"});
  }
  write("", R"(, "sources": [[7]])");
  refused(Errc::kFormat, {"set.json", "'path' is no text"});
}

TEST_F(Manifests, NumbersThatDoNotFitAreRefused) {
  const auto is = [](const char* key, const char* number) {
    return fmt::format("\"{}\": {}", key, number);
  };
  for (const auto& [key, good] : std::vector<std::pair<const char*, const char*>>{
           {"tokens", "4"}, {"documents", "2"}, {"targets", "2"}, {"vocab", "100"}}) {
    for (const char* bad : {"18446744073709551615", "9223372036854775808", "-1", "4.0", "1e30",
                            "\"4\"", "true", "null"}) {
      write();
      replace(is(key, good), is(key, bad));
      refused(Errc::kFormat, {"set.json", key, "whole number"});
    }
  }
}

TEST_F(Manifests, SizesThatWrapAroundAreRefused) {
  write();  // times 8, 2^61 + 2 documents have the 16 bytes that are there
  replace("\"documents\": 2", "\"documents\": 2305843009213693954");
  refused(Errc::kFormat, {"2305843009213693954 documents"});
  write();
  replace("\"uint16\"", "\"uint32\"");  // times 4, 2^62 + 2 tokens have the 8 bytes of it
  replace("\"tokens\": 4", "\"tokens\": 4611686018427387906");
  refused(Errc::kFormat, {"set.bin", "8 bytes", "4611686018427387906"});
  write();
  replace("\"targets\": 2", "\"targets\": 5");
  refused(Errc::kFormat, {"set.json", "5 targets of 4 tokens"});
}

TEST_F(Manifests, OneThatMayNotBeLookedAtIsAnError) {
  write();
  fs::remove(folder_ / "set.json");
  fs::create_symlink(folder_ / "set.json", folder_ / "set.json");
  refused(Errc::kIo, {"set.json", "looked at"});
}

TEST_F(Manifests, TypesAreQuotedInFewPrintableCharacters) {
  write();
  replace("uint16", "\\u001b[31m" + std::string(500, 'x'));
  const std::string said = test::error_of([&] { open(); }).what();
  EXPECT_THAT(said, HasSubstr("\"?[31m" + std::string(55, 'x') + "\""));
}

}  // namespace
}  // namespace sluice::data
