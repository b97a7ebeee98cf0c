/// Checkpoints with the gradient of an update that is still to come: it comes back bit for bit, and
/// what is not what was written is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/state_reader.h"
#include "engine/checkpoint/state_scan.h"
#include "nvme/sums.h"
#include "tests/checkpoint/gradient.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempFolder;
using testing::HasSubstr;
using Pending = Position::Pending;

/// Segments of one grain to several, and of each dtype two or more.
shape::Model model_of_many_segments() {
  shape::Decoder d = small_model("gpt2").decoder;
  d.vocab = 2000;
  d.layers = 6;
  return shape::make_model(d);
}

struct Cut {
  std::uint64_t state_elems, gradient_elems;
  Bytes file_size;
};
constexpr Cut kOneGrain{kGrainElems, kGrainElems, 5_GiB}, kWhole{1 << 24, 1 << 24, 5_GiB},
    kApart{2 * kGrainElems, 3 * kGrainElems, 100_KiB}, kFilePerRecord{1 << 24, kGrainElems, 1_B};

/// In chunks of its own.
void expect_gradient(const StateReader& reader, std::uint64_t chunk_elems) {
  RecordSums sums(reader);
  for (int s = 0; s < static_cast<int>(reader.manifest().segments.size()); ++s) {
    EXPECT_EQ(reader.gradient_dtype(s), gradient_dtype_of(s));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(reader.gradient_factor(s)),
              std::bit_cast<std::uint32_t>(factor_of(s)))
        << factor_of(s);
    const std::uint64_t elems = reader.manifest().segments[static_cast<std::size_t>(s)].elems;
    for (const auto& c : zero::make_chunks(elems, chunk_elems)) {
      const GradientRoom expected = make_gradient(s, c.first_elem, c.elems);
      const GradientRoom read(expected.bytes().size());
      reader.read_gradient(s, c.first_elem, read.bytes()).wait();
      ASSERT_TRUE(std::ranges::equal(read.bytes(), expected.bytes()))
          << "segment " << s << " from " << c.first_elem;
      sums.add_gradient(s, c.first_elem, read.bytes(), 0, c.elems);
    }
  }
}

TEST(Gradient, ComesBackHoweverItWasCut) {
  const shape::Model model = model_of_many_segments();
  ASSERT_GE(model.segments.size(), 8U);
  for (const Cut& cut : {kOneGrain, kWhole, kApart, kFilePerRecord}) {
    const TempFolder folder;
    save_delayed(model, folder / "step-12", cut.state_elems, cut.gradient_elems, cut.file_size);
    const StateReader reader(folder / "step-12", {});
    EXPECT_TRUE(reader.has_gradients());
    EXPECT_EQ(reader.manifest().position, pending_at());
    for (const Record& r : reader.manifest().gradients) EXPECT_EQ(r.offset % kAlignment, 0U);
    for (const std::uint64_t elems : {kGrainElems, 2 * kGrainElems, std::uint64_t{1} << 24}) {
      expect_gradient(reader, elems);
    }
  }
}

TEST(Gradient, OfASkippedStepIsKeptToo) {
  const TempFolder folder;
  save_delayed(small_model("gpt2"), folder / "step-12", kGrainElems, kGrainElems, 5_GiB,
               pending_at(Pending::kSkipped));
  const StateReader reader(folder / "step-12", {});
  EXPECT_EQ(reader.manifest().position, pending_at(Pending::kSkipped));
  expect_gradient(reader, kGrainElems);
}

TEST(Gradient, IsWhereAnUpdateIsPendingAndNowhereElse) {
  const TempFolder folder;
  save(small_model("gpt2"), folder / "step-12");
  const StateReader reader(folder / "step-12", {});
  EXPECT_FALSE(reader.has_gradients());
  const GradientRoom room(kGrainElems * sizeof(float));
  for (const int segment : {-1, 0, 77}) {
    expect_error(Errc::kLogic, {"has no gradient of segment"},
                 [&] { (void)reader.gradient_factor(segment); });
    expect_error(Errc::kLogic, {"has no gradient of segment"},
                 [&] { (void)reader.read_gradient(segment, 0, room.bytes()); });
  }
}

TEST(Gradient, OfElementsThatTheSegmentHasNotIsNotRead) {
  const TempFolder folder;
  save_delayed(small_model("gpt2"), folder / "step-12");
  const StateReader reader(folder / "step-12", {});
  const GradientRoom room(2 * kGrainElems * sizeof(float));
  ASSERT_EQ(reader.manifest().segments.front().elems, kGrainElems);
  expect_error(Errc::kLogic, {"[0:8192] of segment 0", "4096 of them"},
               [&] { (void)reader.read_gradient(0, 0, room.bytes()); });
}

/// The format: whoever reads one elsewhere adds up the same.
TEST(Gradient, ItsSumIsThatOfItsGrainsSeededByTheirPlace) {
  constexpr std::uint64_t kFirst = 3 * kGrainElems, kElems = 4 * kGrainElems;
  for (const int segment : {0, 1, 2}) {
    const GradientRoom room = make_gradient(segment, kFirst, kElems);
    const std::span<const std::byte> all = room.bytes();
    const DType dtype = gradient_dtype_of(segment);
    const Bytes grain = kGrainElems * size_of(dtype);
    std::uint64_t expected = 0;
    for (std::uint64_t g = 0; g < 4; ++g) {
      expected += nvme::sum_of(all.subspan(g * grain, grain), 3 + g);
    }
    const auto sum = [&](std::uint64_t begin, std::uint64_t end) {
      return sum_of_gradient(kFirst, all, dtype, begin, end);
    };
    EXPECT_EQ(sum(0, kElems), expected);
    EXPECT_EQ(sum(kGrainElems, kElems) + sum(0, kGrainElems), expected);
    // However it is cut.
    EXPECT_EQ(sum_of_gradient(kFirst + kGrainElems, all.subspan(grain), dtype, 0, 3 * kGrainElems),
              sum(kGrainElems, kElems));
  }
}

/// What a scan says of each damaged record; `seen` counts elements of state.
std::vector<std::string> damage_of(const fs::path& checkpoint, std::uint64_t* seen = nullptr) {
  std::vector<std::string> said;
  scan_state(StateReader(checkpoint, {}), in_one_piece,
             {[&](const StatePiece& piece) {
                if (seen != nullptr) *seen += piece.master.size();
              },
              [&](const Error& e) {
                EXPECT_EQ(e.code, Errc::kCheckpoint);
                said.emplace_back(e.what());
              }});
  return said;
}

TEST(Gradient, IsScannedAndOnlyStateIsSeen) {
  const shape::Model model = model_of_many_segments();
  for (const Cut& cut : {kOneGrain, kWhole, kApart, kFilePerRecord}) {
    const TempFolder folder;
    save_delayed(model, folder / "step-12", cut.state_elems, cut.gradient_elems, cut.file_size);
    std::uint64_t elems = 0;
    for (const SegmentPlace& segment : places_of(model)) elems += segment.elems;
    std::uint64_t seen = 0;
    EXPECT_TRUE(damage_of(folder / "step-12", &seen).empty());
    EXPECT_EQ(seen, elems);
  }
}

TEST(Gradient, AFlippedBitOfAnyRecordIsFoundAndNamed) {
  const TempFolder folder;
  const fs::path checkpoint = folder / "step-12";
  save_delayed(model_of_many_segments(), checkpoint, kGrainElems, 2 * kGrainElems, 100_KiB);
  const Manifest manifest = StateReader(checkpoint, {}).manifest();
  ASSERT_GT(manifest.gradients.back().file, manifest.gradients.front().file + 1);
  for (const Record& r : manifest.gradients) {
    for (const Bytes at : {Bytes{0}, r.bytes() / 2 + 5, r.bytes() - 1}) {
      flip_bit(checkpoint / manifest.files[r.file], r.offset + at, 6);
      const auto said = damage_of(checkpoint);
      ASSERT_EQ(said.size(), 1U) << r.segment << " at " << at;
      EXPECT_THAT(said.front(), HasSubstr(manifest.files[r.file] + ": the gradient of "));
      EXPECT_THAT(said.front(), HasSubstr("at byte " + std::to_string(r.offset) + " "));

      const StateReader reader(checkpoint, {});
      RecordSums sums(reader);
      const GradientRoom room(r.bytes());
      reader.read_gradient(r.segment, r.first_elem, room.bytes()).wait();
      expect_error(Errc::kCheckpoint, {reader.describe(r), "damaged"},
                   [&] { sums.add_gradient(r.segment, r.first_elem, room.bytes(), 0, r.elems); });
      flip_bit(checkpoint / manifest.files[r.file], r.offset + at, 6);
    }
  }
  EXPECT_TRUE(damage_of(checkpoint).empty());
}

/// After the reader has looked at it.
TEST(Gradient, AFileThatShrinksWhileItIsScannedIsNamed) {
  const TempFolder folder;
  const fs::path checkpoint = folder / "step-12";
  save_delayed(small_model("gpt2"), checkpoint);
  const StateReader reader(checkpoint, {});
  const Record& last = reader.manifest().gradients.back();
  fs::resize_file(checkpoint / reader.manifest().files.back(), last.offset + 1);
  std::vector<std::string> said;
  scan_state(
      reader, in_one_piece,
      {[](const StatePiece& /*piece*/) {}, [&](const Error& e) { said.emplace_back(e.what()); }});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said.front(), HasSubstr(reader.describe(last) + " cannot be read"));
}

TEST(Gradient, TakesSpaceThatIsCounted) {
  const shape::Model model = small_model("gpt2");
  Manifest manifest = lay_out_for(model, kGrainElems, 5_GiB);
  const Bytes state = bytes_of(manifest);
  lay_out_gradients_for(manifest, kGrainElems, 5_GiB);
  Bytes gradients = 0;
  for (const Record& r : manifest.gradients) gradients += r.bytes();
  EXPECT_GE(bytes_of(manifest), state + gradients);
}

/// Nothing of the kind gets its name: a run would go on from it, or pass over it, much later.
TEST(Gradient, WhatContradictsItselfIsNotSealed) {
  const TempFolder folder;
  const auto refused = [&](const Position& position, const std::string& word, auto change) {
    Manifest manifest = lay_out_for(small_model("gpt2"), kGrainElems, 5_GiB);
    lay_out_gradients_for(manifest, kGrainElems, 5_GiB);
    StateWriter writer(std::move(manifest), folder / "step-12",
                       companions_of(small_model("gpt2").decoder), {});
    const std::vector<std::uint64_t> sums = write_records(writer);
    std::vector<GradientSum> gradients = write_gradients(writer);
    change(gradients);
    expect_error(Errc::kLogic, {word}, [&] { writer.seal(position, sums, gradients); });
  };
  const auto nothing = [](auto&) {};
  refused({12, 11}, "no update is pending", nothing);
  refused(pending_at(), "0 sums of ", [](auto& sums) { sums.clear(); });
  refused(pending_at(), "'embedding' is nan", [](auto& sums) { sums[0].factor = NAN; });
  refused(pending_at(), "'embedding' is -inf", [](auto& sums) { sums[0].factor = -INFINITY; });
  refused(pending_at(), "'layer.0' has the factors -0 and 2",
          [](auto& sums) { sums[3].factor = 2; });
  Position position = pending_at();
  position.pending_lr = INFINITY;
  refused(position, "the learning rate of the pending update is inf", nothing);
  StateWriter plain(lay_out_for(small_model("gpt2"), kGrainElems, 5_GiB), folder / "step-12",
                    companions_of(small_model("gpt2").decoder), {});
  expect_error(Errc::kLogic, {"pending, without a gradient"},
               [&] { write_state(plain, pending_at()); });
}

/// Checkpoints of older versions have this text, and have to be read; other tools read it.
TEST(Gradient, AManifestWithoutOneIsOfTheFirstFormat) {
  const std::string text = R"({
 "version": 1,
 "sluice": "1.0",
 "position": {
  "step": 12,
  "applied": 11,
  "skipped_in_row": 1,
  "nvme_written": 4096
 },
 "settings": {
  "seed": "7"
 },
 "beside": {
  "config.json": "000000000000002a"
 },
 "files": [
  "state-0-of-1-0.safetensors"
 ],
 "segments": [
  {
   "name": "head",
   "elems": 4096,
   "tensors": [
    {
     "name": "lm_head.weight",
     "offset": 0,
     "shape": [
      64,
      64
     ]
    }
   ]
  }
 ],
 "records": [
  {
   "segment": 0,
   "first": 0,
   "elems": 4096,
   "file": 0,
   "offset": 4096,
   "xxh3": "00000000000000ff"
  }
 ]
}
)";
  Manifest manifest = parse_manifest(text, "manifest.json");
  EXPECT_EQ(manifest.version(), 1);
  EXPECT_EQ(manifest.position, (Position{12, 11, 1, 4096}));
  EXPECT_EQ(to_json(manifest), text);

  manifest.position.pending = Pending::kApplied;
  manifest.position.pending_lr = 0.3F;
  const std::vector<std::vector<zero::Chunk>> chunks = {zero::make_chunks(4096, 4096)};
  lay_out_gradients(manifest, chunks, std::vector{DType::kBf16}, 5_GiB);
  manifest.gradients.front().factor = 0.1F;
  const auto delayed = nlohmann::json::parse(to_json(manifest));
  EXPECT_EQ(delayed["version"], 2);
  EXPECT_EQ(delayed["position"]["pending"], "applied");
  EXPECT_EQ(delayed["position"]["pending_lr"], 0.30000001192092896);
  EXPECT_EQ(delayed["files"][1], "gradient-0-of-1-0.safetensors");
  EXPECT_EQ(delayed["gradients"][0], nlohmann::json::parse(R"({"segment": 0, "first": 0,
      "elems": 4096, "file": 1, "offset": 4096, "xxh3": "0000000000000000", "dtype": "BF16",
      "factor": 0.10000000149011612})"));
  const Manifest parsed = parse_manifest(to_json(manifest), "manifest.json");
  EXPECT_EQ(parsed.gradients, manifest.gradients);
  EXPECT_EQ(parsed.position, manifest.position);
}

}  // namespace
}  // namespace sluice::checkpoint
