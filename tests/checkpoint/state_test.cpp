/// Checkpoints of state: what was written comes back, and what is not what was written is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/json.h"
#include "engine/checkpoint/state_reader.h"
#include "engine/checkpoint/state_scan.h"
#include "tests/checkpoint/state.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempFolder;
using testing::HasSubstr;

/// Segments of one grain to 141: a scan cuts some, and has fewer slots than pieces.
shape::Model model_of_many_pieces() {
  shape::Decoder d = small_model("llama").decoder;
  d.vocab = 9000;
  d.hidden = 64;
  d.head_dim = 32;
  return shape::make_model(d);
}

struct Cut {
  std::uint64_t chunk_elems;
  Bytes file_size;
};
constexpr Cut kOneGrain{kGrainElems, 5_GiB}, kWhole{1 << 24, 5_GiB},
    kManyFiles{3 * kGrainElems, 1_MiB}, kFilePerRecord{40 * kGrainElems, 1_B};

std::vector<fs::path> state_files(const fs::path& checkpoint) {
  const StateReader reader(checkpoint, {});
  std::vector<fs::path> files;
  for (const std::string& name : reader.manifest().files) {
    files.push_back(checkpoint / name);
  }
  return files;
}

/// In chunks of its own.
void expect_state(const StateReader& reader, std::uint64_t chunk_elems) {
  RecordSums sums(reader);
  for (std::size_t s = 0; s < reader.manifest().segments.size(); ++s) {
    const int segment = static_cast<int>(s);
    for (const auto& c : zero::make_chunks(reader.manifest().segments[s].elems, chunk_elems)) {
      const StateRoom expected = make_state(segment, c.first_elem, c.elems);
      const StateRoom read(c.elems);
      reader.read(segment, c.first_elem, read.floats()).wait();
      ASSERT_TRUE(std::ranges::equal(read.floats(), expected.floats()))
          << "segment " << s << " from " << c.first_elem;
      sums.add(segment, c.first_elem, read.floats(), 0, c.elems);
    }
  }
}

TEST(State, ComesBackHoweverItWasCut) {
  const shape::Model model = model_of_many_pieces();
  for (const Cut& cut : {kOneGrain, kWhole, kManyFiles, kFilePerRecord}) {
    const TempFolder folder;
    save(model, folder / "step-12", cut.chunk_elems, cut.file_size);
    const StateReader reader(folder / "step-12", {});
    EXPECT_EQ(reader.manifest().position, (Position{12, 11, 1, 4096, 2048, 5}));
    EXPECT_EQ(reader.manifest().settings.at("seed"), "7");
    EXPECT_EQ(reader.model().parameters(), model.parameters());
    for (const Cut& other : {kOneGrain, kWhole, kManyFiles, kFilePerRecord}) {
      expect_state(reader, other.chunk_elems);
    }
  }
}

TEST(State, GoesToFilesOfTheSizeThatWasAsked) {
  const TempFolder folder;
  save(model_of_many_pieces(), folder / "step-12", kManyFiles.chunk_elems, kManyFiles.file_size);
  const auto files = state_files(folder / "step-12");
  EXPECT_GT(files.size(), 10U);
  for (const fs::path& file : files) EXPECT_LE(fs::file_size(file), 1_MiB + 64_KiB);
}

TEST(State, IsScannedInOrderOnceAndWhole) {
  const shape::Model model = model_of_many_pieces();
  for (const Cut& cut : {kOneGrain, kWhole, kManyFiles, kFilePerRecord}) {
    const TempFolder folder;
    save(model, folder / "step-12", cut.chunk_elems, cut.file_size);
    const StateReader reader(folder / "step-12", {});
    int segment = 0;
    std::uint64_t at = 0;
    int pieces = 0;
    const auto see = [&](const StatePiece& piece) {
      if (piece.segment != segment) {
        EXPECT_EQ(at, reader.manifest().segments[static_cast<std::size_t>(segment)].elems);
        EXPECT_EQ(piece.segment, ++segment);
        at = 0;
      }
      EXPECT_EQ(piece.first_elem, at);
      for (const float master : piece.master) {
        ASSERT_EQ(master, state_of(static_cast<std::size_t>(segment), 0, at++));
      }
      ++pieces;
    };
    scan_state(reader, in_one_piece, {see, [](const Error& e) { ADD_FAILURE() << e.what(); }});
    EXPECT_EQ(segment + 1, static_cast<int>(model.segments.size()));
    EXPECT_EQ(at, reader.manifest().segments.back().elems);
    EXPECT_GT(pieces, 6);  // more than there are slots
  }
}

/// What a scan says of each damaged record.
std::vector<std::string> damage_of(const fs::path& checkpoint) {
  std::vector<std::string> said;
  scan_state(StateReader(checkpoint, {}), in_one_piece,
             {[](const StatePiece& /*piece*/) {},
              [&](const Error& e) {
                EXPECT_EQ(e.code, Errc::kCheckpoint);
                said.emplace_back(e.what());
              }});
  return said;
}

TEST(State, AFlippedBitOfAnyRecordIsFoundAndNamed) {
  const TempFolder folder;
  const fs::path checkpoint = folder / "step-12";
  save(small_model("gpt2"), checkpoint, kGrainElems, 100_KiB);
  const Manifest manifest = StateReader(checkpoint, {}).manifest();
  ASSERT_GT(manifest.records.size(), 5U);
  ASSERT_GT(manifest.files.size(), 2U);
  for (std::size_t i = 0; i < manifest.records.size(); ++i) {
    const Record& r = manifest.records[i];
    for (const Bytes at : {Bytes{0}, r.bytes() / 2 + 5, r.bytes() - 1}) {
      flip_bit(checkpoint / manifest.files[r.file], r.offset + at, 6);
      const auto said = damage_of(checkpoint);
      ASSERT_EQ(said.size(), 1U) << i << " at " << at;
      EXPECT_THAT(said.front(), HasSubstr(manifest.files[r.file] + ": the record of "));
      EXPECT_THAT(said.front(), HasSubstr("at byte " + std::to_string(r.offset) + " "));

      const StateReader reader(checkpoint, {});
      RecordSums sums(reader);
      const StateRoom room(r.elems);
      reader.read(r.segment, r.first_elem, room.floats()).wait();
      expect_error(Errc::kCheckpoint, {reader.describe(r), "damaged"},
                   [&] { sums.add(r.segment, r.first_elem, room.floats(), 0, r.elems); });
      flip_bit(checkpoint / manifest.files[r.file], r.offset + at, 6);
    }
  }
  EXPECT_TRUE(damage_of(checkpoint).empty());
}

TEST(State, GrainsThatChangedPlacesAreFound) {
  const TempFolder folder;
  const shape::Model model = small_model("llama");
  save(model, folder / "step-12", 1 << 20);
  const Manifest manifest = StateReader(folder / "step-12", {}).manifest();
  const auto two = std::ranges::find_if(manifest.records,
                                        [](const Record& r) { return r.elems >= 2 * kGrainElems; });
  ASSERT_NE(two, manifest.records.end());
  const std::string name = "step-12/" + manifest.files.front();
  std::string bytes = folder.read(name);
  const Bytes grain = kGrainElems * sizeof(float);
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(two->offset);
  std::swap_ranges(first, first + grain, first + grain);
  folder.write(name, bytes);
  EXPECT_EQ(damage_of(folder / "step-12").size(), 1U);
}

TEST(State, EveryDamagedRecordIsNamedAndTheOthersAreSeen) {
  const TempFolder folder;
  const fs::path checkpoint = folder / "step-12";
  save(model_of_many_pieces(), checkpoint, 40 * kGrainElems);
  const Manifest manifest = StateReader(checkpoint, {}).manifest();
  std::vector<std::string> places;
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}, manifest.records.size() - 1}) {
    const Record& r = manifest.records[i];
    flip_bit(checkpoint / manifest.files[r.file], r.offset + r.bytes() / 3);
    places.push_back("at byte " + std::to_string(r.offset) + " ");
  }
  EXPECT_THAT(
      damage_of(checkpoint),
      testing::ElementsAre(HasSubstr(places[0]), HasSubstr(places[1]), HasSubstr(places[2])));
}

/// After the reader has looked at it.
TEST(State, AFileThatShrinksWhileItIsScannedIsNamed) {
  const TempFolder folder;
  const fs::path checkpoint = folder / "step-12";
  save(model_of_many_pieces(), checkpoint, 40 * kGrainElems);
  const StateReader reader(checkpoint, {});
  const Record& last = reader.manifest().records.back();
  fs::resize_file(checkpoint / reader.manifest().files.back(), last.offset + 1);
  std::vector<std::string> said;
  std::uint64_t seen = 0;
  scan_state(reader, in_one_piece,
             {[&](const StatePiece& piece) { seen += piece.master.size(); },
              [&](const Error& e) { said.emplace_back(e.what()); }});
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said.back(), HasSubstr("cannot be read"));
  EXPECT_THAT(said.back(), HasSubstr("at byte " + std::to_string(last.offset)));
  EXPECT_GT(seen, 0U);
}

TEST(State, WhatALookThrowsEndsTheScanWhileReadsAreUnderWay) {
  const TempFolder folder;
  save(model_of_many_pieces(), folder / "step-12", kWhole.chunk_elems);
  const StateReader reader(folder / "step-12", {});
  expect_error(Errc::kConfig, {"enough"}, [&] {
    scan_state(reader, in_one_piece,
               {[](const StatePiece& /*piece*/) { throw Error(Errc::kConfig, "enough"); },
                [](const Error& e) { throw Error(e); }});
  });
}

/// Than a list of tensors: 8 GiB of state in the smallest chunks have so many.
TEST(State, AManifestMayHaveMoreValues) {
  Manifest manifest;
  manifest.beside = {{"config.json", 0}};
  manifest.segments = {{"layer.0", 0, {{"long", 0, std::vector<std::int64_t>(kMaxValues, 1)}}}};
  EXPECT_EQ(parse_manifest(to_json(manifest), "manifest.json").segments, manifest.segments);
}

TEST(State, OfAnotherModelIsRefusedByTheFirstDifference) {
  const TempFolder folder;
  save(small_model("gpt2"), folder / "step-12");
  const StateReader reader(folder / "step-12", {});
  shape::Decoder d = small_model("gpt2").decoder;
  d.vocab += 1;
  expect_error(Errc::kConfig, {"transformer.wte.weight [130, 24]", "[131, 24]"},
               [&] { reader.check_model(shape::make_model(d)); });
}

TEST(State, NothingStandsUnderItsNameBeforeItIsPublished) {
  const TempFolder folder;
  const shape::Model model = small_model("gpt2");
  {
    StateWriter writer(lay_out_for(model, kGrainElems, 5_GiB), folder / "step-12",
                       companions_of(model.decoder), {});
    write_state(writer, {});
    EXPECT_FALSE(fs::exists(folder / "step-12"));
  }
  EXPECT_TRUE(folder.empty());
  folder.write("step-12/something", "of somebody");
  expect_error(Errc::kConfig, {"step-12: exists already"},
               [&] { save(model, folder / "step-12"); });
  EXPECT_EQ(folder.read("step-12/something"), "of somebody");
}

}  // namespace
}  // namespace sluice::checkpoint
