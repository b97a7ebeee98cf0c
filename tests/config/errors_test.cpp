// What is refused, and that the message says where, what, why and what to write instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/load.h"

namespace sluice::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// The message that `text` is refused with; "" when it is accepted.
std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {},
                    const Environment& environment = {}) {
  try {
    from_text(text, overrides, environment);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::kConfig);
    return e.what();
  }
  return {};
}

struct Case {
  const char* name;
  std::string text;  // after "model: {preset: tiny}\n", so line 1 of it is line 2
  std::string begins;
  std::vector<std::string> says;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class Refused : public testing::TestWithParam<Case> {};

TEST_P(Refused, WithPlaceKeyReasonAndFix) {
  const Case& c = GetParam();
  const std::string message = refusal("model: {preset: tiny}\n" + c.text);
  EXPECT_THAT(message, StartsWith(c.begins));
  for (const std::string& part : c.says) EXPECT_THAT(message, HasSubstr(part));
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Keys, Refused,
    testing::Values(
        Case{"UnknownTopLevelKey",
             "limits: {max_time: 1h}",
             "run.yaml:2:1 limits: unknown key;",
             {"zero_optimization"}},
        Case{"UnknownKeyIsSpelledAlmostRight",
             "zero_optimization:\n  offload_optimiser: {device: cpu}",
             "run.yaml:3:3 zero_optimization.offload_optimiser: unknown key;",
             {"did you mean zero_optimization.offload_optimizer?"}},
        Case{"MisnestedSectionIsFoundByItsName",
             "offload_param: {device: cpu}",
             "run.yaml:2:1 offload_param: unknown key;",
             {"did you mean zero_optimization.offload_param.device?"}},
        Case{"MisnestedKeyIsFoundByItsName",
             "train: {lr: 3e-4}",
             "run.yaml:2:9 train.lr: ",
             {"did you mean optimizer.lr?"}},
        Case{"DeepSpeedsParamsLeadToTheKeyItself",
             "optimizer: {params: {lr: 3e-4}}",
             "run.yaml:2:13 optimizer.params: ",
             {"did you mean optimizer.lr?"}},
        Case{"StepsToProfileCountFromOne",
             "profile: {steps: 0-3}",
             "run.yaml:2:18 profile.steps: 0-3: steps count from 1;",
             {"A-B"}},
        Case{"StepsToProfileEndBeforeTheyBegin",
             "profile: {steps: 5-3}",
             "run.yaml:2:18 profile.steps: 5-3: the last step comes before",
             {}},
        Case{"TooManyStepsToProfile",
             "profile: {steps: 1-101}",
             "run.yaml:2:18 profile.steps: 1-101: too many steps",
             {"at most 100"}},
        Case{"StepsToProfileThatAreNoNumbers",
             "profile: {steps: 3-x}",
             "run.yaml:2:18 profile.steps: ",
             {"A-B"}},
        Case{"KeyThatIsNotBuilt",
             "data: {packing: true}",
             "run.yaml:2:8 data.packing: unknown key",
             {"seq_len"}},
        Case{"DuplicateKey",
             "seed: 1\nseed: 2",
             "run.yaml:3:1: seed: duplicate key",
             {"run.yaml:2:1"}},
        Case{"DuplicateKeyInASection",
             "train: {steps: 1, epochs: 1, steps: 2}",
             "run.yaml:2:30: ",
             {"steps: duplicate key", "run.yaml:2:9"}},
        Case{"DuplicateKeyInAFreeMap",
             "data: {seq_len: 8}\ncompute: {threads: 1, threads: 1}",
             "run.yaml:3:23: threads: duplicate key",
             {}},
        Case{
            "DottedKeyInTheFile", "train.steps: 5", "run.yaml:2:1 train.steps: ", {"command line"}},
        Case{"NoSpaceAfterTheColon",
             "eval: {every:200}",
             "run.yaml:2:8 eval.every:200: unknown",
             {"space after the colon"}},
        Case{"MergeKey",
             "eval: &e {every: 1}\ntrain: {<<: *e}",
             "run.yaml:3:9: <<: ",
             {"not merged"}},
        Case{"SectionWithoutKeys",
             "train:\nseed: 5",
             "run.yaml:2:1 train: null: this is a section",
             {"indent"}},
        Case{"SectionThatIsAValue", "train: 5", "run.yaml:2:1 train: 5: this is a section", {}},
        Case{"KeyThatIsAList", "[a, b]: 5", "run.yaml:2:1: a list of 2: no key", {}},
        Case{"KeyThatIsMissing", "~: 5", "run.yaml:2:1: null: no key", {}},
        Case{"Tag", "seed: !!int 5", "run.yaml:2:7: the tag", {"take it out"}},
        Case{"AliasBesideItsKey",
             "aio: {threads: 1, thread_count: 2}",
             "run.yaml:2:19 aio.thread_count: another name of aio.threads",
             {"run.yaml:2:16"}},
        Case{"VersionOfTheFuture", "version: 2", "run.yaml:2:10 version: 2: ", {"takes int 1"}}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Values, Refused,
    testing::Values(
        Case{"BareNumberForASize",
             "aio: {block_size: 1e9}",
             "run.yaml:2:19 aio.block_size: ",
             {"'1e9'", "DeepSpeed counts elements", "size from 4KiB"}},
        Case{"UnknownUnit",
             "aio: {block_size: 4MX}",
             "run.yaml:2:19 aio.block_size: ",
             {"'4MX'", "unknown unit"}},
        Case{"SizeThatIsNoMultiple",
             "aio: {block_size: 6KiB}",
             "run.yaml:2:19 aio.block_size: 6KiB: no multiple of 4KiB",
             {"takes auto (1MiB)"}},
        Case{"SizeBelowItsRange",
             "zero_optimization: {sub_group_size: 1KiB}",
             "run.yaml:2:37 zero_optimization.sub_group_size: 1KiB: out of range",
             {"48KiB"}},
        Case{"SizeInTheWrongTier",
             "tiers: {gpu: {limit: 24}}",
             "run.yaml:2:22 tiers.gpu.limit: 24: not between 0 and 1",
             {"size | fraction"}},
        Case{"LimitOfNothing",
             "tiers: {nvme: {limit: 0}}",
             "run.yaml:2:23 tiers.nvme.limit: 0: ",
             {"no bytes"}},
        Case{"FractionAboveOne",
             "scheduler: {min_lr_ratio: 101%}",
             "run.yaml:2:27 scheduler.min_lr_ratio: 101%: not between",
             {}},
        Case{"YamlOneBool",
             "data: {shuffle: on}",
             "run.yaml:2:17 data.shuffle: on: ",
             {"true | false"}},
        Case{"CapitalBool", "data: {shuffle: True}", "run.yaml:2:17 data.shuffle: True: ", {}},
        Case{"QuotedBool",
             "data: {shuffle: 'true'}",
             "run.yaml:2:17 data.shuffle: \"true\": ",
             {"quotes"}},
        Case{"OctalNumber", "seed: 012", "run.yaml:2:7 seed: 012: ", {"octal"}},
        Case{"HexNumber", "seed: 0x10", "run.yaml:2:7 seed: 0x10: ", {"decimal"}},
        Case{"Underscores", "seed: 1_000", "run.yaml:2:7 seed: 1_000: ", {"underscores"}},
        Case{"QuotedNumber", "seed: '5'", "run.yaml:2:7 seed: \"5\": ", {"remove the quotes"}},
        Case{"FloatForAnInt", "seed: 1e3", "run.yaml:2:7 seed: 1e3: ", {"whole number"}},
        Case{"NegativeSeed", "seed: -1", "run.yaml:2:7 seed: -1: out of range", {"from 0"}},
        Case{"IntBeyond64Bits",
             "seed: 99999999999999999999",
             "run.yaml:2:7 seed: 9999",
             {"out of range"}},
        Case{"CountThatIsNotWhole",
             "train: {tokens: 1.2345k}",
             "run.yaml:2:17 train.tokens: 1.23",
             {"no whole number"}},
        Case{"CountBeyond64Bits",
             "train: {tokens: 99999999999999G}",
             "run.yaml:2:17 train.tokens:",
             {"out of range"}},
        Case{"CountInBillionsOfB",
             "train: {tokens: 2B}",
             "run.yaml:2:17 train.tokens: 2B: ",
             {"1G"}},
        Case{"NotANumber",
             "optimizer: {lr: .nan}",
             "run.yaml:2:17 optimizer.lr: .nan: ",
             {"not a number"}},
        Case{"PlainNan", "optimizer: {lr: nan}", "run.yaml:2:17 optimizer.lr: nan: ", {}},
        Case{"Infinity", "optimizer: {lr: .inf}", "run.yaml:2:17 optimizer.lr: .inf: ", {}},
        Case{"Overflow", "optimizer: {lr: 1e999}", "run.yaml:2:17 optimizer.lr: 1e999: out of", {}},
        Case{"NegativeLearningRate",
             "optimizer: {lr: -1e-3}",
             "run.yaml:2:17 optimizer.lr: -1e-3: out of range",
             {"from 0"}},
        Case{"BetaOfOne",
             "optimizer: {betas: [0.9, 1]}",
             "run.yaml:2:26 optimizer.betas: 1: out",
             {"below 1"}},
        Case{"BetaThatIsOneInFp32",
             "optimizer: {betas: [0.9, 0.9999999999]}",
             "run.yaml:2:26 optimizer.betas: 0.9999999999: out",
             {}},
        Case{"OneBeta",
             "optimizer: {betas: [0.9]}",
             "run.yaml:2:20 optimizer.betas: a list of 1: ",
             {"two"}},
        Case{"EpsilonOfZero", "optimizer: {eps: 0}", "run.yaml:2:18 optimizer.eps: 0: out", {}},
        Case{"ClippingAtZero",
             "train: {gradient_clipping: 0}",
             "run.yaml:2:28 train.gradient_clipping: 0: out",
             {"takes null | number above 0"}},
        Case{"ChoiceThatIsNotBuilt",
             "optimizer: {type: lion}",
             "run.yaml:2:19 optimizer.type: lion: unknown or not built",
             {"adamw | adam"}},
        Case{"ChoiceWithASlip",
             "optimizer: {type: adam_w}",
             "run.yaml:2:19 optimizer.type: adam_w",
             {"did you mean adamw?"}},
        Case{"PrecisionThatIsNotBuilt",
             "precision: {compute: fp16}",
             "run.yaml:2:22 precision.compute: fp16: ",
             {"takes bf16 | fp32"}},
        Case{"GradientsOnNvmeAreNotBuilt",
             "zero_optimization: {offload_gradient: {device: nvme}}",
             "run.yaml:2:48 zero_optimization.offload_gradient.device: nvme: ",
             {"cpu | none | auto"}},
        Case{"NullWhereAValueBelongs", "seed:", "run.yaml:2:1 seed: null: there is no value", {}},
        Case{"AutoWhereThereIsNone", "seed: auto", "run.yaml:2:7 seed: auto: not a number", {}},
        Case{"ListWhereOneValueBelongs", "seed: [1]", "run.yaml:2:7 seed: a list of 1: ", {}},
        Case{"QueueDepthOutOfRange",
             "aio: {queue_depth: 0}",
             "run.yaml:2:20 aio.queue_depth: 0: ",
             {"from 1 to 4096"}},
        Case{"NameThatIsAPath", "name: ../x", "run.yaml:2:7 name: ../x: no name for a folder", {}},
        Case{"EmptyPath", "output_dir: ''", "run.yaml:2:13 output_dir: \"\": empty", {}},
        Case{"ControlCharacterInAPath",
             "output_dir: \"a\\0b\"",
             "run.yaml:2:13 output_dir: ",
             {"control characters"}},
        Case{"UnknownVariable",
             "output_dir: '${env:NOPE}/x'",
             "run.yaml:2:13 output_dir: ",
             {"no variable NOPE"}},
        Case{"UnknownPlaceholder",
             "output_dir: '${user}/x'",
             "run.yaml:2:13 output_dir: ",
             {"${user} is unknown", "${env:VARIABLE}"}},
        Case{"OpenPlaceholder",
             "output_dir: '${name'",
             "run.yaml:2:13 output_dir: ",
             {"without '}'"}},
        Case{"AnchorInsideItself", "data: {train: &a [*a]}", "run.yaml:2:19: ", {"inside itself"}},
        Case{"TabAsIndent", "train:\n\tsteps: 5", "run.yaml:3:1: a tab", {"spaces"}},
        Case{"TwoDocuments", "seed: 1\n---\nseed: 2", "run.yaml: ", {"more than one document"}},
        Case{"BrokenYaml", "train: {steps: 5", "run.yaml:", {"no YAML"}},
        Case{"UnknownAnchor", "seed: *s", "run.yaml:2:", {"no YAML"}}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Together, Refused,
    testing::Values(
        Case{"TwoLengths",
             "train: {steps: 5, tokens: 1M}",
             "run.yaml:2:27 train.tokens: 1000000: ",
             {"train.steps is set too"}},
        Case{"BatchThatDoesNotMultiply",
             "train: {train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 8, "
             "train_batch_size: 30}",
             "run.yaml:2:94 train.train_batch_size: 30: ",
             {"train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 8 = 32", "write 32"}},
        Case{"BatchThatDoesNotDivide",
             "train: {train_micro_batch_size_per_gpu: 4, train_batch_size: 30}",
             "run.yaml:2:62 train.train_batch_size: 30: ",
             {"30 / train_micro_batch_size_per_gpu 4 = 7.5", "write 28 or 32"}},
        Case{"BatchSmallerThanItsPart",
             "train: {gradient_accumulation_steps: 8, train_batch_size: 3}",
             "run.yaml:2:59 train.train_batch_size: 3: ",
             {"= 0.375", "write 8"}},
        Case{"BatchBeyondItsRange",
             "train: {gradient_accumulation_steps: 1000000, train_micro_batch_size_per_gpu: "
             "1000000}",
             "run.yaml:2:38 train.gradient_accumulation_steps: ",
             {"= 1000000000000 is more than"}},
        Case{"Bf16GradientsOfSeveralMicroBatches",
             "train: {gradient_accumulation_steps: 2}\nprecision: {grad_dtype: bf16}",
             "run.yaml:3:25 precision.grad_dtype: \"bf16\": 2 micro-batches are summed",
             {"fp32"}},
        Case{"Bf16GradientsOfFp32",
             "precision: {grad_dtype: bf16, compute: fp32}",
             "run.yaml:2:25 precision.grad_dtype: \"bf16\": precision.compute is fp32",
             {"auto"}}),
    case_name);

TEST(Models, ExactlyOneIsNamed) {
  EXPECT_THAT(refusal("seed: 5"), StartsWith("run.yaml model.preset: null: no model is named"));
  EXPECT_THAT(refusal("model: {preset: tiny, config: {n_layer: 2}}"),
              StartsWith("run.yaml:1:17 model.preset: \"tiny\": model.config is set too"));
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
  EXPECT_THAT(with("seed.x=5"), StartsWith("command line seed: a map of 1: one value"));
  EXPECT_THAT(with("optimizer.betas=[0.9"), AllOf(StartsWith("command line"), HasSubstr("YAML")));
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
  BadFiles() { std::filesystem::create_directories(folder_); }
  ~BadFiles() override { std::filesystem::remove_all(folder_); }

  std::string written(const std::string& text) const {
    const std::string path = folder_ + "/run.yaml";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string load_refusal(const std::string& path) {
    try {
      load(path, {}, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::kConfig);
      EXPECT_THAT(e.what(), StartsWith(path));
      return std::string(e.what()).substr(path.size());
    }
    return {};
  }

  const std::string folder_ = testing::TempDir() + "sluice_config_" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(BadFiles, MissingIsNamed) {
  EXPECT_THAT(load_refusal(folder_ + "/none.yaml"), HasSubstr("No such file"));
}

TEST_F(BadFiles, AFolderIsNoFile) {
  EXPECT_THAT(load_refusal(folder_), StartsWith(": a folder;"));
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
