// Files, overrides and variables that are refused, and that the message says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/config/refused.h"
#include "tests/support/temp_folder.h"

namespace sluice::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Models, ExactlyOneIsNamed) {
  EXPECT_THAT(refusal("seed: 5"), StartsWith("run.yaml model.preset: null: no model is named"));
  EXPECT_THAT(refusal("model: {preset: tiny, config: {n_layer: 2}}"),
              StartsWith("run.yaml:1:17 model.preset: \"tiny\": model.config is set too"));
  EXPECT_THAT(refusal("model: {preset: tiny, path: m}"),
              StartsWith("run.yaml:1:17 model.preset: \"tiny\": model.path is set too"));
  EXPECT_THAT(
      refusal("model: {preset: tiny, init: pretrained}"),
      StartsWith("run.yaml:1:29 model.init: \"pretrained\": model.preset names no weights"));
}

TEST(FreeMaps, RefuseWhatReadersTakeDifferently) {
  for (const std::string value : {"yes", "Off", "012", "0x1f", "1_000", ".inf", "-.inf", ".NaN",
                                  "99999999999999999999", "1e999", "TRUE", "5."}) {
    EXPECT_THAT(refusal("model: {config: {n: " + value + "}}"),
                StartsWith("run.yaml:1:21 model.config: " + value + ": "))
        << value;
  }
}

TEST(FreeMaps, RefuseAKeyThatCouldNotBeWrittenBack) {
  const std::vector<std::string> more = {"model.config." + std::string(129, 'k') + "=1"};
  EXPECT_THAT(refusal("model: {config: {n: 1}}", more),
              StartsWith("command line model.config: 1: its key kkk"));
}

TEST(Overrides, AreRefusedByTheSameRules) {
  const auto with = [](const std::string& text) { return refusal("model: {preset: t}", {text}); };
  EXPECT_THAT(with("train.steps=x"),
              StartsWith("command line train.steps: x: not a number; takes null | count"));
  EXPECT_THAT(with("train.stepz=5"), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(with("--train.steps=5"), HasSubstr("command line --train: unknown key"));
  EXPECT_THAT(with("train.steps"), HasSubstr("write key=value"));
  EXPECT_THAT(with("train.steps="), HasSubstr("no value after '='"));
  EXPECT_THAT(with("=5"), HasSubstr("no key"));
  EXPECT_THAT(with(".steps=5"), HasSubstr("no key"));
  EXPECT_THAT(with("train..steps=5"), HasSubstr("no key"));
  EXPECT_THAT(refusal("model: {preset: t}\ntrain: {steps: 5}", {"train=3"}),
              StartsWith("command line train: 3: this is a section"));
  EXPECT_THAT(with("seed.x=5"), StartsWith("command line seed: a map of 1: one value"));
  EXPECT_THAT(with("optimizer.betas=[0.9"),
              StartsWith("command line optimizer.betas:1:1: no YAML: "));
  EXPECT_THAT(with("optimizer={type: Adam, type: x}"), StartsWith("command line optimizer:1:14: "));
  EXPECT_THAT(with("optimizer={lr: x}"),
              StartsWith("command line optimizer:1:6 optimizer.lr: x: not a number"));
  EXPECT_THAT(with("train.steps=\x01"), HasSubstr("UTF-8"));
  EXPECT_THAT(with("model.preset.x=5"),
              StartsWith("command line model.preset.x: cannot be set; model.preset is t,"));
}

TEST(Environment, ValuesThatAreNoPathAreRefused) {
  for (const std::string bad : {"${name}", "a\nb", "\xff", "\x01", ""}) {
    EXPECT_THAT(refusal("model: {preset: t}\noutput_dir: '${env:D}'", {}, {{"D", bad}}),
                StartsWith("run.yaml:2:13 output_dir: "))
        << bad;
  }
}

class BadFiles : public testing::Test {
 protected:
  std::string written(const std::string& text) const { return folder_.write("run.yaml", text); }
  static std::string load_refusal(const std::string& path) {
    try {
      load(path, {}, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::kConfig);
      test::expect_short(e.what());
      EXPECT_THAT(e.what(), StartsWith(path));
      return std::string(e.what()).substr(path.size());
    }
    return {};
  }

  const test::TempFolder folder_;
};

TEST_F(BadFiles, MissingIsNamed) {
  EXPECT_THAT(load_refusal(folder_ / "none.yaml"), HasSubstr("No such file"));
}

TEST_F(BadFiles, AFolderIsNoFile) {
  EXPECT_THAT(load_refusal(folder_.path()), StartsWith(": a folder;"));
}

/// Nobody writes to it: opening it to read would wait for ever.
TEST_F(BadFiles, WhatIsNoFileIsSaidAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(load_refusal(folder_ / "fifo"), StartsWith(": a FIFO;"));
  EXPECT_THAT(load_refusal("/dev/zero"), StartsWith(": a device;"));
}

TEST_F(BadFiles, EmptyIsSaid) {
  EXPECT_THAT(load_refusal(written("")), StartsWith(": is empty"));
  EXPECT_THAT(load_refusal(written("# only a comment\n")), StartsWith(": is empty"));
}

TEST_F(BadFiles, BinaryIsNoText) {
  EXPECT_THAT(load_refusal(written(std::string("\x7f"
                                               "ELF\x02\x01\x00\xff",
                                               8))),
              HasSubstr("no UTF-8 text"));
}

TEST_F(BadFiles, TheEndOfFileByteHidesNothing) {
  // yaml-cpp would read the first line and silently drop the rest.
  EXPECT_THAT(load_refusal(written("model: {preset: tiny}\n\x04\nseed: 5\n")),
              HasSubstr("byte 0x04 at offset 22"));
}

TEST_F(BadFiles, HugeIsNotRead) {
  const std::string path = written("seed: 1\n");
  std::filesystem::resize_file(path, 100 << 20);
  EXPECT_THAT(load_refusal(path), HasSubstr("larger than 1MiB"));
}

TEST_F(BadFiles, DeepNestingIsRefusedEarly) {
  for (const std::string unit : {"[", "{a: ", "- ", "? ", "a:\n "}) {
    std::string text = "model: ";
    if (unit == "- " || unit == "? ") text.clear();
    for (std::size_t i = 0; text.size() + unit.size() < 200'000; ++i) {
      text += unit;
      if (unit == "a:\n ") text += std::string(i, ' ');
    }
    EXPECT_THAT(load_refusal(written(text)), testing::Not("")) << unit;
  }
  EXPECT_THAT(load_refusal(written("model: " + std::string(100'000, '['))),
              HasSubstr("nested more than 32 deep"));
}

TEST_F(BadFiles, AliasesDoNotExplode) {
  std::string text = "model:\n  config:\n    a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    text += "    a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += (j ? ", *a" : "*a") + std::to_string(i - 1);
    text += "]\n";
  }
  EXPECT_THAT(load_refusal(written(text)), HasSubstr("aliases written out"));
}

TEST_F(BadFiles, AListIsNoRunFile) {
  EXPECT_THAT(load_refusal(written("- a\n- b\n")), HasSubstr("a run file is a map of keys"));
  EXPECT_THAT(load_refusal(written("just words\n")), HasSubstr("a run file is a map of keys"));
}

}  // namespace
}  // namespace sluice::config
