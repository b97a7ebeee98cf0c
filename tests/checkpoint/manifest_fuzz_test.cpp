/// Manifests that nobody vouches for: whatever they hold, they are refused, or lie as they say.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/checkpoint/gradient.h"
#include "tests/checkpoint/mutator.h"

namespace sluice::checkpoint {
namespace {

std::uint64_t inputs() {
  const char* wanted = std::getenv("SLUICE_FUZZ_INPUTS");
  return wanted == nullptr ? 20'000 : std::strtoull(wanted, nullptr, 10);
}

/// Of a checkpoint, and of one with a gradient.
std::vector<std::string> good_ones() {
  Manifest manifest = lay_out_for(small_model("gpt2"), kGrainElems, 100_KiB);
  manifest.beside = {{"config.json", 5}};
  const std::string plain = to_json(manifest);
  lay_out_gradients_for(manifest, 2 * kGrainElems, 20_KiB);
  for (Record& r : manifest.gradients) r.factor = factor_of(r.segment);
  manifest.position = pending_at();
  return {plain, to_json(manifest)};
}

/// What is said of it more than once is the same.
void expect_whole(const Manifest& m) {
  EXPECT_EQ(contradiction_of(m), "");
  EXPECT_EQ(m.version(), m.position.pending == Position::Pending::kNone ? 1 : 2);
  std::vector<Bytes> ends;
  for (std::size_t file = 0; file < m.files.size(); ++file) {
    ends.push_back(header_of(m, file).size());
  }
  for (const RecordKind kind : kRecordKinds) {
    std::vector<std::uint64_t> elems(m.segments.size());
    for (const Record& r : m.of(kind)) {
      ASSERT_EQ(r.kind, kind);
      const auto segment = static_cast<std::size_t>(r.segment);
      ASSERT_EQ(r.first_elem, elems.at(segment));
      elems[segment] = r.end_elem();
      ASSERT_EQ(r.offset, ends.at(r.file));
      ends[r.file] += r.bytes();
    }
    for (std::size_t s = 0; s < elems.size() && !m.of(kind).empty(); ++s) {
      EXPECT_EQ(elems[s], m.segments[s].elems);
    }
  }
  EXPECT_EQ(ends, file_sizes(m));
  const std::string text = to_json(m);
  EXPECT_EQ(to_json(parse_manifest(text, "manifest.json")), text);
}

TEST(ManifestFuzz, EndsInAnErrorOrIsWhole) {
  const std::vector<std::string> good = good_ones();
  for (const std::string& text : good) expect_whole(parse_manifest(text, "manifest.json"));
  std::uint64_t read = 0;
  for (std::uint64_t input = 0; input < inputs() && !testing::Test::HasFailure(); ++input) {
    SCOPED_TRACE("input " + std::to_string(input));
    Mutator mutator(input, good);
    const std::string text = mutator.text(good[input % good.size()]);
    try {
      expect_whole(parse_manifest(text, "manifest.json"));
      ++read;
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::kCheckpoint) << e.what();
    }
  }
  EXPECT_GT(read, inputs() / 50) << "damage that is always refused at once tests little";
  EXPECT_LT(read, inputs() / 2);
}

}  // namespace
}  // namespace sluice::checkpoint
