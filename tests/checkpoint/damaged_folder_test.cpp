/// Folders that claim to be a checkpoint of state. Each is an error that names what is wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/json.h"
#include "engine/checkpoint/state_reader.h"
#include "nvme/sums.h"
#include "tests/checkpoint/state.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::expect_error;
using test::TempFolder;

class DamagedFolder : public testing::Test {
 protected:
  DamagedFolder() { save(small_model("gpt2"), folder_ / "step-12", kGrainElems, 100_KiB); }

  void open() const { (void)StateReader(folder_ / "step-12", {}).model(); }
  std::string read(const std::string& name) const { return folder_.read("step-12/" + name); }
  void write(const std::string& name, const std::string& bytes) const {
    folder_.write("step-12/" + name, bytes);
  }
  fs::path path(const std::string& name) const { return folder_ / ("step-12/" + name); }

  /// Opening fails and names the file; the file is as it was afterwards.
  void expect_damaged(const std::string& name, const std::string& bytes,
                      const std::string& named) const {
    const std::string before = read(name);
    write(name, bytes);
    expect_error(Errc::kCheckpoint, {named}, [&] { open(); });
    write(name, before);
  }
  /// A manifest that COMPLETE vouches for.
  void vouch_for(const std::string& manifest) const {
    write("manifest.json", manifest);
    write("COMPLETE",
          hex(nvme::sum_of(std::as_bytes(std::span(manifest.data(), manifest.size())))) + "\n");
  }

  const TempFolder folder_;
  const std::vector<std::string> names_ = {"COMPLETE", "manifest.json", "model/config.json",
                                           "state-0-of-1-0.safetensors",
                                           "state-0-of-1-2.safetensors"};
};

TEST_F(DamagedFolder, AsItWasWrittenIsNone) {
  EXPECT_NO_THROW(open());
  EXPECT_GT(StateReader(folder_ / "step-12", {}).manifest().files.size(), 2U);
}

/// Of data only the records' sums know.
TEST_F(DamagedFolder, AFlippedBitAnywhereButInDataIsFound) {
  for (const std::string& name : names_) {
    const std::size_t bytes = name.starts_with("state") ? kAlignment : read(name).size();
    const std::string named = name == "COMPLETE" ? "manifest.json" : name;
    for (std::size_t i = 0; i < bytes; ++i) {
      flip_bit(path(name), i, static_cast<int>(i % 8));
      expect_error(Errc::kCheckpoint, {named}, [&] { open(); });
      flip_bit(path(name), i, static_cast<int>(i % 8));
    }
  }
}

TEST_F(DamagedFolder, AFileThatIsShorterOrLongerIsNamed) {
  for (const std::string& name : names_) {
    const std::string whole = read(name);
    const std::string named = name == "COMPLETE" ? "COMPLETE" : name;
    for (const std::size_t size : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
      expect_damaged(name, whole.substr(0, size), named);
    }
    expect_damaged(name, whole + " ", named);
  }
}

TEST_F(DamagedFolder, AFileThatIsMissingOrNoFileIsNamed) {
  for (const std::string& name : names_) {
    const std::string whole = read(name);
    fs::remove(path(name));
    expect_error(Errc::kCheckpoint, {name, "is not there"}, [&] { open(); });
    fs::create_directory(path(name));
    expect_error(Errc::kCheckpoint, {name}, [&] { open(); });
    fs::remove(path(name));
    ASSERT_EQ(::mkfifo(path(name).c_str(), 0600), 0);  // nobody waits for it
    expect_error(Errc::kCheckpoint, {name}, [&] { open(); });
    fs::remove(path(name));
    write(name, whole);
  }
  expect_error(Errc::kCheckpoint, {"step-13"}, [&] { StateReader(folder_ / "step-13", {}); });
}

TEST_F(DamagedFolder, AManifestOfANewerVersionSaysSo) {
  std::string newer = read("manifest.json");
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  vouch_for(newer);
  expect_error(Errc::kCheckpoint, {"manifest.json", "version 2", "newer"}, [&] { open(); });
}

/// With sums that are right: nothing that it says is believed.
TEST_F(DamagedFolder, AManifestThatSomebodyWroteIsLookedAt) {
  using nlohmann::json;
  const json whole = json::parse(read("manifest.json"));
  const auto refused = [&](const char* pointer, const json& value, const std::string& word) {
    json changed = whole;
    changed[json::json_pointer(pointer)] = value;
    vouch_for(changed.dump());
    expect_error(Errc::kCheckpoint, {word}, [&] { open(); });
  };
  for (const std::string name : {"../elsewhere", "model/elsewhere", ".", ""}) {
    refused("/files/0", name, "'" + name + "'");
  }
  refused("/files/0", "manifest.json", "manifest.json");
  refused("/beside", {{"../../secret", "0000000000000000"}}, "'../../secret'");
  refused("/beside", json::object(), "config.json");
  refused("/records/0/offset", 0, "do not lie");
  refused("/records/0/elems", 0, "has 0 elements");
  refused("/records/0/elems", std::uint64_t{1} << 63, "elements");
  refused("/records/1/first", 4096, "no record of segment");
  refused("/records/1/segment", 77, "no record of segment");
  refused("/records/0/file", std::uint64_t{1} << 40, "is in file");
  refused("/records/0/xxh3", "zz", "16 digits");
  refused("/segments/0/elems", std::uint64_t{1} << 60, "elements");
  refused("/segments/0/elems", 8192, "no record of segment");
  refused("/segments/0/tensors/0/shape", {24, 130}, "another model");
  refused("/segments", json::array(), "record 0 belongs to no segment");
  refused("/records", json::array(), "no record of segment");
  refused("/position", "here", "'position'");
  refused("/position/loss_scale", 12, "no power of two");
  refused("/position/scale_held", "long", "'scale_held'");
  refused("/version", -1, "'version'");
}

/// What passes is whole; everything else is an Error.
TEST_F(DamagedFolder, NoChangeOfAManifestIsWorseThanAnError) {
  const std::string whole = read("manifest.json");
  int refused = 0;
  for (std::size_t i = 0; i < whole.size(); i += 7) {
    for (const char other : {'0', '9', '"', '{', '\0'}) {
      std::string changed = whole;
      changed[i] = other;
      try {
        (void)parse_manifest(changed, "manifest.json");
      } catch (const Error& e) {
        EXPECT_EQ(e.code, Errc::kCheckpoint) << e.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()) / 7);
}

}  // namespace
}  // namespace sluice::checkpoint
