// Random input: never a crash, never an error of another kind, never a file that does not load
// back.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/field.h"
#include "engine/config/load.h"
#include "engine/config/write.h"

namespace sluice::config {
namespace {

/// Whether the text loads, and then its resolved file back to itself; or else it is refused with
/// kConfig. Anything else fails the test.
bool loads_or_is_refused(const std::string& text, const std::vector<std::string>& overrides = {}) {
  std::string yaml;
  try {
    yaml = to_yaml(from_text(text, overrides));
  } catch (const Error& e) {
    RC_ASSERT(e.code == Errc::kConfig);
    RC_ASSERT(std::string(e.what()).size() > 10U);
    RC_ASSERT(std::string(e.what()).size() < 4000U);
    return false;
  }
  RC_ASSERT(to_yaml(from_text(yaml)) == yaml);
  return true;
}

rc::Gen<std::string> any_path() {
  std::vector<std::string> paths;
  for (const Field& f : fields()) paths.push_back(f.path);
  return rc::gen::elementOf(paths);
}

rc::Gen<std::string> yaml_piece() {
  return rc::gen::element<std::string>(
      "{", "}", "[", "]", ": ", ":", "- ", "? ", "\n", "\n  ", "\n    ", ", ", "&a ", "*a",
      "!!int ", "! ", "|\n", ">\n", "\"", "'", "#", "%YAML 1.2\n", "---\n", "...\n", "\t", "~",
      "null", "<<", "@", "`", "\\", "\r", "\x04", "\xff", "\xc3\xa9", "model", "preset", "config",
      "train", "steps", "tiny", "data", "aio", "threads", "thread_count", "012", "1e9", "5", "-1",
      "0.5", "64MiB", "80%", "${name}", "${env:X}", "${", "auto", "true", "on");
}

rc::Gen<std::string> value_text() {
  return rc::gen::element<std::string>("auto", "null", "0", "1", "7", "1.5M", "0.25", "1e-5", "3%",
                                       "100%", "64MiB", "5GiB", "48KiB", "true", "false", "cpu",
                                       "none", "nvme", "bf16", "fp32", "linear", "a b.txt", "-x",
                                       "[a, 'b c']", "[0.5, 0.25]", "tiny", "threads", "serial");
}

TEST(Properties, RandomBytesNeverCrash) {
  EXPECT_TRUE(rc::check([] { loads_or_is_refused(*rc::gen::arbitrary<std::string>()); }));
}

TEST(Properties, RandomYamlNeverCrashes) {
  EXPECT_TRUE(rc::check([] {
    const auto pieces = *rc::gen::container<std::vector<std::string>>(yaml_piece());
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    loads_or_is_refused(text);
    loads_or_is_refused("model: {preset: tiny}\n" + text);
    loads_or_is_refused("model:\n  config: " + text);
  }));
}

TEST(Properties, DamagedFilesNeverCrash) {
  const std::string whole = to_yaml(from_text("model: {config: {n_layer: 4, a: [1, {b: c}]}}"));
  EXPECT_TRUE(rc::check([&] {
    std::string text = whole;
    const auto edits = *rc::gen::container<std::vector<std::pair<std::size_t, std::string>>>(
        rc::gen::pair(rc::gen::inRange<std::size_t>(0, whole.size()), yaml_piece()));
    for (const auto& [at, piece] : edits) text.replace(at, piece.size(), piece);
    loads_or_is_refused(text);
  }));
}

TEST(Properties, RandomOverridesLoadBackOrAreRefused) {
  EXPECT_TRUE(rc::check([] {
    const auto pairs =
        *rc::gen::resize(15, rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
                                 rc::gen::pair(any_path(), value_text())));
    std::vector<std::string> kept;  // those that are accepted, so that the rest still loads
    for (const auto& [path, value] : pairs) {
      kept.push_back(path + "=" + value);
      if (!loads_or_is_refused("model: {preset: tiny}", kept)) kept.pop_back();
    }
  }));
}

}  // namespace
}  // namespace sluice::config
