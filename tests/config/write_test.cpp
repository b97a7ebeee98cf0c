// What the field table gives besides a parser.
#include "engine/config/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "engine/config/deepspeed_keys.h"
#include "engine/config/field.h"
#include "engine/config/load.h"

namespace sluice::config {
namespace {

using nlohmann::json;

/// The schema of a key, by its path; null when there is none.
json schema_at(json at, std::string path) {
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string part = path.substr(0, dot);
    path = dot < path.size() ? path.substr(dot + 1) : "";
    if (!at.contains("properties") || !at["properties"].contains(part)) return nullptr;
    at = json(at["properties"][part]);
  }
  return at;
}

TEST(ToYaml, LoadsBackToTheSameText) {
  const Config c = from_text(
      "name: x-1\nmodel:\n  config: {n: 4, s: 'null', t: '1', eps: 1.0e-05, f: 1.0, l: [a, [b, 2]],"
      " m: {'a b': {}, '': no-key}, u: \"\\u0001 \\\" \\\\ \\n\xc3\xa9\"}\n"
      "data: {train: ['a b.txt', '-x', '~', \"'\", 'null', '#a', 'a: b'], valid: []}\n"
      "tiers: {gpu: {limit: 1.0}, cpu: {limit: 3B}, nvme: {limit: 0.1%, paths: [/a]}}\n"
      "scheduler: {warmup_steps: 0%}\naio: {direct: true, threads: 2}\n"
      "train: {tokens: 5M, train_batch_size: 6, train_micro_batch_size_per_gpu: 2}\n");
  const std::string text = to_yaml(c);
  const Config again = from_text(text);
  EXPECT_EQ(to_yaml(again), text);
  EXPECT_EQ(again.model.config, c.model.config);
  EXPECT_EQ(again.data.train, c.data.train);
  EXPECT_EQ(again.tiers.gpu.limit, c.tiers.gpu.limit);
  EXPECT_EQ(again.tiers.nvme.limit, c.tiers.nvme.limit);
  EXPECT_EQ(again.scheduler.warmup_steps, c.scheduler.warmup_steps);
  EXPECT_EQ(again.train.gradient_accumulation_steps, 3);
}

TEST(ToYaml, LoadsTheLongestKeyBack) {
  std::string key;  // 128 control characters: six bytes each when written
  for (int i = 0; i < 128; ++i) key += "\\x01";
  const Config c = from_text("model: {config: {\"" + key + "\": 1}}");
  EXPECT_EQ(from_text(to_yaml(c)).model.config, c.model.config);
}

TEST(ToYaml, HasEveryKey) {
  const std::string text = to_yaml(from_text("model: {preset: tiny}"));
  for (const Field& f : fields()) {
    const std::string leaf = f.path.substr(f.path.rfind('.') + 1);
    EXPECT_THAT(text, testing::HasSubstr(leaf + ":")) << f.path;
  }
}

TEST(Schema, IsJsonWithEveryKeyAndItsDefault) {
  const json s = json::parse(schema());
  EXPECT_EQ(s["additionalProperties"], false);
  for (const Field& f : fields()) {
    const json leaf = schema_at(s, f.path);
    ASSERT_FALSE(leaf.is_null()) << f.path;
    EXPECT_TRUE(leaf.contains("default")) << f.path;
    EXPECT_TRUE(leaf.contains("description")) << f.path;
    const bool typed = leaf.contains("type") || leaf.contains("enum") || leaf.contains("anyOf");
    EXPECT_TRUE(typed) << f.path;
    for (const std::string& alias : f.aliases) {
      EXPECT_EQ(schema_at(s, alias)["deprecated"], true) << alias;
    }
  }
  EXPECT_EQ(schema_at(s, "aio.direct")["enum"], json({"auto", true, false}));
  EXPECT_EQ(schema_at(s, "zero_optimization")["additionalProperties"], false);
}

TEST(Table, KeysAreUniqueAndSectionsAreNoKeys) {
  std::set<std::string> seen;
  for (const Field& f : fields()) {
    EXPECT_TRUE(seen.insert(f.path).second) << f.path;
    for (const std::string& alias : f.aliases) EXPECT_TRUE(seen.insert(alias).second) << alias;
    EXPECT_FALSE(is_section(f.path)) << f.path;
    EXPECT_FALSE(f.doc.empty()) << f.path;
  }
}

TEST(Table, DefaultsAreValuesThatTheirKeyTakes) {
  const Environment none;
  for (const Field& f : fields()) {
    const json value = f.write(Config{});
    if (value.is_array() || value.is_null()) continue;
    Value v;
    v.kind = Value::Kind::kPlain;
    v.text = value.is_string() ? value.get<std::string>() : value.dump();
    Config c;
    EXPECT_NO_THROW(f.read(c, v, Context{f.path, f.takes, &none, {}})) << f.path;
    EXPECT_EQ(f.write(c), value) << f.path;
  }
}

std::string committed(const std::string& path) {
  std::ifstream in(SOURCE_DIR "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Reference, IsTheOneInTheTree) {
  EXPECT_EQ(committed("docs/config.md"), reference_markdown())
      << "the field table has changed: ninja config_docs";
  EXPECT_EQ(committed("docs/deepspeed.md"), deepspeed_markdown())
      << "the table of DeepSpeed's keys has changed: ninja config_docs";
}

}  // namespace
}  // namespace sluice::config
